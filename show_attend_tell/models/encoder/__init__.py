"""The encoder: networks of ``keras.applications`` and SceneNet, in Keras."""

"""Files of version 0.3, turned into ``.safetensors``; the one reader of old forms."""

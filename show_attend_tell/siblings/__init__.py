"""Models beside the captioner that attend to parts of a picture, as plug-ins.

``digits/`` classifies and generates digits: RAM and DRAW. ``words/`` reads words. Each
is complete: settings, data, preparation, models, training, evaluation, commands and a
tab of the web page. ``common/`` has what both use. Nothing outside of this folder
imports it: the plug-ins are found by their entry points, see :mod:`runtime.plugins`.
"""

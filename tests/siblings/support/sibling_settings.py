"""Small settings of each task of digits and words."""

from small_settings import CAPTION

CLASSIFY = {
    "name": "small",
    "task": "classify",
    "data": {"name": "mnist", "source": "mnist"},
    "training": {"epochs": 2},
    "glimpse": {"glimpses": 4},
}
WINDOW = CLASSIFY | {"glimpse": None, "draw": {"steps": 3}}
LAYERS = CLASSIFY | {"glimpse": None, "classifier": {"widths": [64]}}
GENERATE = {key: value for key, value in WINDOW.items() if key != "glimpse"}
GENERATE |= {"task": "generate"}
READ = {
    "name": "x",
    "task": "read",
    "data": {"name": "words", "source": "words"},
    "training": {},
    "reader": {},
}
TASKS = {
    "caption": CAPTION,
    "classify": CLASSIFY,
    "generate": GENERATE,
    "read": READ,
}

"""Let trained models of plug-ins compute without compiling, to save time.

Tests of compiled ones are in ``ram/test_model.py``, ``draw/test_bound.py`` and
``words/test_generation.py``.
"""

DIGITS = ("digits.draw.bound", "digits.ram.prediction")
WORDS = ("words.generation",)


def compute_eagerly(monkeypatch, modules):
    """Replace the compiler of modules of ``siblings`` for one test."""
    for module in modules:
        monkeypatch.setattr(
            f"show_attend_tell.siblings.{module}.compiled",
            lambda function, *_, **__: function,
        )

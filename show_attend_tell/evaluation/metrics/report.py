"""What a scoring returns, and the error it raises."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Report:
    """The scores of one set of captions and how they were made.

    Attributes:
        scores: percent, 0 to 100 (CIDEr, whose usual scale is 0 to 10, times 100):
            ``BLEU-1`` to ``BLEU-4``, the same with the suffix ``-no-bp`` (without
            brevity penalty, as the paper reports), ``METEOR``, ``ROUGE-L``, ``CIDEr``
            and, on request, ``SPICE``. What could not be computed is absent.
        tokenizer: ``ptb`` or ``simple``, the one that was used.
        notes: one line for each thing that could not be computed, with the reason.
        versions: of the libraries and tools behind the numbers.
        per_caption: metric -> photo id -> percent, for BLEU-4 (with penalty), ROUGE-L,
            CIDEr and METEOR where it ran; to list the worst captions.
    """

    scores: dict[str, float]
    tokenizer: str
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    per_caption: dict[str, dict[str, float]] = field(default_factory=dict)

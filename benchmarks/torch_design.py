"""Define the baseline: the common PyTorch design of Show, Attend and Tell.

The well known tutorials share it (sgrvinod's, AaronCCWong's): the annotations are
projected again at every step, an ``nn.LSTMCell`` advances by one word, and its state is
immediately mapped to logits. Captions are sorted by length, so that a step computes
only those captions that have not ended.
"""

import torch
from torch import Tensor, nn

from benchmarks.sizes import Sizes

PAD = 0
START = 1
END = 2


class Attention(nn.Module):
    """f_att of one step: alpha = softmax(w relu(W_a a + W_h h)), z = sum alpha a."""

    def __init__(self, annotation_width: int, lstm_width: int, attention_width: int):
        super().__init__()
        self.encoder_att = nn.Linear(annotation_width, attention_width)
        self.decoder_att = nn.Linear(lstm_width, attention_width)
        self.full_att = nn.Linear(attention_width, 1)

    def forward(self, annotations: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return the context (B, D) and alpha (B, L), of (B, L, D) and (B, n)."""
        projected = self.encoder_att(annotations)  # (B, L, A), at every step
        hidden = torch.relu(projected + self.decoder_att(h).unsqueeze(1))
        alpha = torch.softmax(self.full_att(hidden).squeeze(2), dim=1)
        return (annotations * alpha.unsqueeze(2)).sum(dim=1), alpha


class CommonDesign(nn.Module):
    """The decoder of the tutorials."""

    def __init__(self, sizes: Sizes, dropout: float = 0.5):
        super().__init__()
        _, _, D, A, n, m, K, _ = sizes.letters
        self.vocabulary = K
        self.attention = Attention(D, n, A)
        self.embedding = nn.Embedding(K, m)
        self.dropout = nn.Dropout(dropout)
        self.decode_step = nn.LSTMCell(m + D, n)
        self.init_h = nn.Linear(D, n)
        self.init_c = nn.Linear(D, n)
        self.f_beta = nn.Linear(n, D)
        self.fc = nn.Linear(n, K)

    def initial_state(self, annotations: Tensor) -> tuple[Tensor, Tensor]:
        """Return h_0 and c_0, (B, n) each."""
        mean = annotations.mean(dim=1)
        return self.init_h(mean), self.init_c(mean)

    def step(
        self, annotations: Tensor, embedded: Tensor, h: Tensor, c: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Advance by one word; return h, c and alpha."""
        z, alpha = self.attention(annotations, h)
        z = torch.sigmoid(self.f_beta(h)) * z
        h, c = self.decode_step(torch.cat([embedded, z], dim=1), (h, c))
        return h, c, alpha

    def forward(self, annotations: Tensor, captions: Tensor, lengths: list[int]):
        """Run the decoder over given captions.

        Args:
            annotations: (B, L, D).
            captions: ids from <start> on, (B, T).
            lengths: words to predict of each caption, descending; at most T.

        Returns:
            Logits (B, T, K) and alpha (B, T, L), zeros after a caption's length.
        """
        B, L, T = *annotations.shape[:2], max(lengths)
        embedded = self.embedding(captions)
        h, c = self.initial_state(annotations)
        logits = annotations.new_zeros(B, T, self.vocabulary)
        alphas = annotations.new_zeros(B, T, L)
        for t in range(T):
            active = sum(length > t for length in lengths)
            h, c, alpha = self.step(
                annotations[:active], embedded[:active, t], h[:active], c[:active]
            )
            logits[:active, t] = self.fc(self.dropout(h)).to(logits.dtype)
            alphas[:active, t] = alpha.to(alphas.dtype)
        return logits, alphas


def loss_of(model: nn.Module, annotations, captions, targets, lengths) -> Tensor:
    """Return the mean loss of the words plus the doubly stochastic term."""
    logits, alphas = model(annotations, captions, lengths)
    words = nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=PAD
    )
    return words + ((1 - alphas.sum(dim=1)) ** 2).mean()


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return the tutorials' optimiser."""
    return torch.optim.Adam(model.parameters(), lr=4e-4)


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, *batch, autocast=None
) -> float:
    """Run one update.

    Args:
        model: the design, compiled or not.
        optimizer: the optimiser of its parameters.
        batch: annotations, captions, targets and lengths, see :func:`loss_of`.
        autocast: context manager around the loss; by default none.

    Returns:
        The loss.
    """
    optimizer.zero_grad()
    if autocast is None:
        loss = loss_of(model, *batch)
    else:
        with autocast:
            loss = loss_of(model, *batch)
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 5)  # as the tutorials do
    optimizer.step()
    return loss.item()


@torch.no_grad()
def beam_search(
    model: CommonDesign, annotations: Tensor, beam: int, max_words: int
) -> tuple[list[int], float]:
    """Search the best caption of one photo as the tutorials do.

    Every hypothesis has a copy of the annotations; one that ends leaves the beam, which
    narrows by one.

    Args:
        model: the design, in eval mode.
        annotations: annotations of one photo, (1, L, D).
        beam: initial number of hypotheses.
        max_words: maximum number of words, <end> included.

    Returns:
        The words up to <end> and their log p; those of an unfinished hypothesis if
        none has ended.
    """
    h, c = model.initial_state(annotations)
    a = annotations
    words = torch.tensor([START], device=a.device)
    scores = torch.zeros(1, device=a.device)
    sentences: list[list[int]] = [[]]
    ended: list[tuple[list[int], float]] = []
    for _ in range(max_words):
        h, c, _ = model.step(a, model.embedding(words), h, c)
        totals = scores.unsqueeze(1) + torch.log_softmax(model.fc(h), dim=1)
        width = min(beam - len(ended), totals.numel())
        scores, index = totals.flatten().topk(width)
        parents = index // model.vocabulary
        words = index % model.vocabulary
        sentences = [
            [*sentences[p], w]
            for p, w in zip(parents.tolist(), words.tolist(), strict=True)
        ]
        unfinished = [k for k, sentence in enumerate(sentences) if sentence[-1] != END]
        ended += [
            (sentences[k], scores[k].item())
            for k in range(width)
            if sentences[k][-1] == END
        ]
        if not unfinished:
            break
        sentences = [sentences[k] for k in unfinished]
        kept = torch.tensor(unfinished, device=a.device)
        parents = parents[kept]
        words = words[kept]
        scores = scores[kept]
        h = h[parents]
        c = c[parents]
        a = annotations.expand(len(unfinished), -1, -1).contiguous()
    live = list(zip(sentences, scores.tolist(), strict=True)) if unfinished else []
    return max(ended or live, key=lambda pair: pair[1])

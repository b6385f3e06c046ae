"""Read compiled programs of XLA as text: what they cost, and what they may not do.

XLA's analysis counts the body of a loop once. Here each body counts as often as its
loop repeats it.
"""

import math
import re
from dataclasses import dataclass
from functools import cached_property

_COMPUTATION = re.compile(r"^(ENTRY )?%([\w.\-]+) \(.*\{$")
_LOOP = re.compile(r" while\(.*condition=%([\w.\-]+), body=%([\w.\-]+)")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_CALLED = re.compile(r"\b(?:calls|to_apply)=%([\w.\-]+)")
_CONSTANT = re.compile(r" = s32\[\]\S* constant\((\d+)\)")
# The result, an array or a tuple of arrays, of a sum over chips.
_SUM = re.compile(r" = (.*?) (?:all-reduce|all-reduce-start|reduce-scatter)\(")
_SHAPE = re.compile(r"\b(?:f32|bf16|f16)\[([\d,]*)\]")
_SENT = re.compile(
    r" (?:all-(?:reduce|gather|to-all)|reduce-scatter|collective-permute)"
    r"(?:-start)?\("
)
_HOST = re.compile(r"callback|is_host_transfer=true|\b(?:infeed|outfeed)\(")
_DYNAMIC = re.compile(r"\[[\d,]*<=")


@dataclass(frozen=True)
class Cost:
    """The cost of a run: operations, bytes read and written, and cycles."""

    operations: float = 0.0
    bytes: float = 0.0
    cycles: float = 0.0


class Module:
    """A compiled program.

    Args:
        text: the program, from ``jax.stages.Compiled.as_text``.
    """

    def __init__(self, text: str):
        self.text = text

    @cached_property
    def computations(self) -> dict[str, list[str]]:
        """The lines of each computation by its name, the entry under ``ENTRY``."""
        found: dict[str, list[str]] = {}
        lines: list[str] = []
        for line in self.text.splitlines():
            if match := _COMPUTATION.match(line):
                lines = found["ENTRY" if match[1] else match[2]] = []
            else:
                lines.append(line)
        return found

    def _loops(self, name: str = "ENTRY", times: int = 1) -> list[tuple[str, int, int]]:
        """Return the body of each loop inside a computation, and loops inside these.

        With each body come how often it runs, and how often its loop is entered.
        """
        found = []
        for line in self.computations[name]:
            if match := _LOOP.search(line):
                condition, body = match.groups()
                trips = max(self._constants(condition))
                found.append((body, times * trips, times))
                found += self._loops(body, times * trips)
        return found

    def _constants(self, name: str) -> list[int]:
        """Return the integers in a computation and in those that it calls."""
        text = "\n".join(self.computations[name])
        found = [int(number) for number in _CONSTANT.findall(text)]
        for called in _CALLED.findall(text):
            found += self._constants(called)
        return found

    def cost(self) -> Cost:
        """Return the cost of a run."""
        counted = self._analysis("ENTRY")
        operations = counted["flops"]
        moved = counted["bytes accessed"]
        cycles = self._cycles("ENTRY")
        for body, runs, entered in self._loops():
            counted = self._analysis(body)
            # The analysis of what is around the loop has counted the body once.
            operations += (runs - entered) * counted["flops"]
            moved += (runs - entered) * counted["bytes accessed"]
            cycles += runs * self._cycles(body)
        return Cost(operations, moved, cycles)

    def _cycles(self, name: str) -> int:
        """Return the compiler's estimates for a computation without its loops."""
        estimates = _CYCLES.findall("\n".join(self.computations[name]))
        return sum(map(int, estimates))

    def _analysis(self, name: str) -> dict[str, float]:
        """Return XLA's analysis of a computation, made the entry of the program."""
        import jax
        from jaxlib import _hlo, _jax  # the analysis has no public name

        text = self.text
        if name != "ENTRY":
            # The first line describes the arguments of the old entry.
            head, _, text = text.partition("\n")
            text = f"{head.partition(',')[0]}\n{text}"
            text = text.replace("\nENTRY %", "\n%", 1)
            text = text.replace(f"\n%{name} (", f"\nENTRY %{name} (", 1)
        client = jax.devices()[0].client
        return _jax.hlo_module_cost_analysis(client, _hlo.hlo_module_from_text(text))

    def added_across_chips(self) -> int:
        """Return how many numbers a run adds across chips, a loop's body once."""
        total = 0
        for result in _SUM.findall(self.text):
            for shape in _SHAPE.findall(result):
                total += math.prod(int(n) for n in shape.split(",") if n)
        return total

    def sends(self) -> bool:
        """Return whether a run sends arrays between chips."""
        return _SENT.search(self.text) is not None

    def calls_host(self) -> bool:
        """Return whether a run calls the host, or waits for it."""
        return _HOST.search(self.text) is not None

    def has_dynamic_shapes(self) -> bool:
        """Return whether the size of an array is known only in a run."""
        return _DYNAMIC.search(self.text) is not None

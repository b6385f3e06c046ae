"""The table of TPUs counts what it claims, and names what a program must not do."""

import os
from pathlib import Path

import pytest
from new_process import python

from benchmarks import hlo, tpu
from benchmarks.tpu import Row

WHOLE = Row("a step", chips=4, batch=64, memory=1e9, added=100)

NESTED = """
HloModule nested, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

%inner_limit (a: (s32[], f32[8])) -> pred[] {
  %bound = s32[]{:T(128)} constant(5)
  ROOT %less = pred[] compare(%k, %bound), direction=LT
}

%inner (a: (s32[], f32[8])) -> (s32[], f32[8]) {
  %f = f32[8]{0} fusion(%x), backend_config={"estimated_cycles":"7"}
}

%outer_limit (b: (s32[], f32[8])) -> pred[] {
  %bound.1 = s32[]{:T(128)} constant(3)
}

%outer (b: (s32[], f32[8])) -> (s32[], f32[8]) {
  %g = f32[8]{0} fusion(%x), backend_config={"estimated_cycles":"10"}
  %w = (s32[], f32[8]) while(%t), condition=%inner_limit, body=%inner
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %h = f32[8]{0} fusion(%x), backend_config={"estimated_cycles":"100"}
  %v = (s32[], f32[8]) while(%t), condition=%outer_limit, body=%outer
}
"""


def test_the_body_of_a_loop_counts_as_often_as_it_runs(monkeypatch):
    # XLA's analysis of a computation counts the bodies inside it once.
    flops = {"ENTRY": 1000 + 20 + 1, "outer": 20 + 1, "inner": 1}
    monkeypatch.setattr(
        hlo.Module,
        "_analysis",
        lambda self, name: {"flops": flops[name], "bytes accessed": 2 * flops[name]},
    )
    operations = 1000 + 3 * (20 + 5 * 1)
    cycles = 100 + 3 * (10 + 5 * 7)
    expected = hlo.Cost(operations, 2 * operations, cycles)
    assert hlo.Module(NESTED).cost() == expected


def test_operations_of_a_loop_are_those_of_the_unrolled_program():
    jax = pytest.importorskip("jax", reason="needs the packages of '.[jax]'")

    def run(weights, x):
        return jax.lax.fori_loop(0, 6, lambda _, x: x @ weights, x)

    square = jax.ShapeDtypeStruct((32, 32), "float32")
    rows = jax.ShapeDtypeStruct((8, 32), "float32")
    module = hlo.Module(jax.jit(run).lower(square, rows).compile().as_text())
    products = 6 * 2 * 8 * 32 * 32
    assert module.cost().operations == pytest.approx(products, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "line", "weights", "fault"),
    [
        ({}, "", 100, None),
        ({"memory": 17e9}, "", 0, "needs 17.0 GB of the 16"),
        ({"added": 98}, "", 100, "adds 98 numbers across chips, fewer than its 100"),
        ({"added": 0, "chips": 1}, "", 100, None),  # one chip has nothing to add
        ({}, " = f32[8]{0} all-gather-start(%x)", 0, "sends arrays between chips"),
        ({}, " = f32[8]{0} all-gather-start(%x)", 100, None),
        ({}, 'custom_call_target="xla_python_gpu_callback"', 100, "calls the host"),
        ({}, "%x = f32[<=64,8]{1,0} parameter(0)", 100, "has a shape that is not"),
    ],
)
def test_what_a_program_must_not_do_is_named(changes, line, weights, fault):
    row = Row(**(vars(WHOLE) | changes))
    found = tpu.faults_of(row, hlo.Module(NESTED + line), weights)
    if fault is None:
        assert found == ()
    else:
        assert len(found) == 1
        assert found[0].startswith(fault)


def test_all_arrays_of_a_sum_across_chips_count():
    text = (
        "  %a = (f32[4,5]{1,0:T(8,128)}, bf16[3]{0}, s32[2]{0}) all-reduce(%x, %y)\n"
        "  %b = f32[]{:T(128)} all-reduce-start(%z)\n"
    )
    assert hlo.Module(text).added_across_chips() == 4 * 5 + 3 + 1


ON_FOUR = """
import jax
from show_attend_tell.runtime.keras_startup import start_keras
start_keras()
from benchmarks import tpu
from benchmarks.sizes import TINY
tpu._devices = jax.devices
for work in ("LSTM soft, step", "LSTM soft, beam search"):
    row = tpu.measure(work, 4, TINY)
    assert row.faults == (), row
    assert row.batch == TINY.batch
    assert bool(row.added) == ("step" in work), row
"""


@pytest.mark.nightly
def test_steps_add_gradients_across_devices_and_searches_send_nothing():
    pytest.importorskip("jax", reason="needs the packages of '.[jax]'")
    env = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    }
    done = python("-c", ON_FOUR, env=env, cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr


def test_the_document_has_a_row_without_a_fault_of_each_program():
    text = tpu.DOCUMENT.read_text(encoding="utf-8")
    found = text.partition(tpu.MARKERS[0])[2].partition(tpu.MARKERS[1])[0]
    lines = [line for line in found.splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rows = [(cell[0], int(cell[1]), cell[-1]) for cell in cells]
    assert rows == [(work, n, "none") for work in tpu.WORKS for n in tpu.CHIPS]


def test_a_section_replaces_the_one_before(tmp_path):
    document = tmp_path / "page.md"
    begin, end = tpu.MARKERS
    document.write_text(f"before\n{begin}\nold\n{end}\nafter\n", encoding="utf-8")
    tpu.write_section("new", document)
    assert (
        document.read_text(encoding="utf-8") == f"before\n{begin}\nnew\n{end}\nafter\n"
    )

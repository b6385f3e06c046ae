# The whole line, from photos to captions; every verb is one of `show-attend-tell`.
#
#   make demo                    scenes drawn by the program, no download but packages
#   make train EXPERIMENT=flickr8k_soft DATA=/where/flickr8k/is
#   make bench                   speed against baselines; ARGS=train_step for a part
#
# Variables: EXPERIMENT (a file of experiments/, without .toml), DATA (the folder of
# photos and captions; scenes need none), PYTHON (3.11 or newer), ARGS (more options of the verb).

EXPERIMENT ?= scenes
DATA ?=
PYTHON ?=
ARGS ?=

BIN := .venv/bin/python
INSTALLED := .venv/installed
TELL := $(BIN) -m show_attend_tell
PICK := --experiment '$(EXPERIMENT)'
# Earlier stages run first where they know their data; ARGS go to the target named.
CHAIN := $(if $(DATA),yes,$(filter scenes,$(EXPERIMENT)))
own_args = $(if $(filter $@,$(MAKECMDGOALS)),$(ARGS))
QUICK := not slow and not network and not gpu
JAX := test_benchmarks decoding/test_beam decoding/test_hypotheses decoding/test_sampling \
	$(addprefix models/test_,attention captioner captioner_saving captioner_fit captioner_loss \
	decoder estimator generation golden hard_attention losses nwgm)
# Several files of tests at once, one a core: most of their time is compiling on one.
AT_ONCE := -n logical --maxprocesses 4 --dist loadfile
FIGURES := experiments/runs/scenes/figures
DEMO_PHOTO := scene-test-00004
# PyTorch for processors alone, a tenth of the size of the one for graphics cards.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

.PHONY: help demo prepare features train eval caption doctor \
	test test-slow test-jax check format clean bench
.DELETE_ON_ERROR:

help:
	@sed -n '2,/^$$/s/^# \{0,1\}//p' Makefile
	@echo "Targets: demo, prepare features train eval caption, doctor, test test-slow test-jax"
	@echo "check format, bench, clean"

# A Python of 3.11 or newer that can make virtual environments; the first one found.
$(INSTALLED): setup.cfg setup.py pyproject.toml
	@set -e; chosen=; reason="none of version 3.11 or newer was found; install Python 3.11+"; \
	for python in "$(PYTHON)" $(if $(PYTHON),,python3 python3.13 python3.12 python3.11 python); do \
	  [ -n "$$python" ] || continue; \
	  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  if "$$python" -c 'import venv, ensurepip' 2>/dev/null; then chosen=$$python; break; fi; \
	  reason="$$python cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv"; \
	done; \
	if [ -z "$$chosen" ]; then echo "error: no usable Python: $$reason, or name one by PYTHON=..." >&2; exit 1; fi; \
	echo "Installing into .venv with $$chosen"; \
	"$$chosen" -m venv --clear .venv; \
	$(BIN) -m pip install --quiet --disable-pip-version-check -e '.[test]'; \
	touch $(INSTALLED)

prepare: $(INSTALLED)
	$(TELL) prepare $(PICK) $(if $(DATA),--data '$(DATA)') $(own_args)

features: $(INSTALLED) $(if $(CHAIN),prepare)
	$(TELL) features $(PICK) $(own_args)

train: $(INSTALLED) $(if $(CHAIN),features)
	$(TELL) train $(PICK) $(own_args)

eval: $(INSTALLED)
	$(TELL) eval $(PICK) $(own_args)

# make caption PHOTOS='one.jpg folder/'
caption: $(INSTALLED)
	$(TELL) caption --model 'experiments/runs/$(EXPERIMENT)/model.keras' $(ARGS) $(PHOTOS)

doctor: $(INSTALLED)
	$(TELL) doctor

# The whole line on drawn scenes; replaces an earlier demo.
demo: $(INSTALLED)
	@set -e; start=$$(date +%s); \
	$(TELL) prepare --experiment scenes; \
	$(TELL) features --experiment scenes; \
	$(TELL) train --experiment scenes --overwrite; \
	$(TELL) eval --experiment scenes; \
	$(TELL) caption --model experiments/runs/scenes/model.keras \
	  --attention $(FIGURES) --html $(FIGURES)/$(DEMO_PHOTO).html \
	  prepared/scenes/photos/$(DEMO_PHOTO).jpg; \
	echo "Attention of every word: $(FIGURES)/$(DEMO_PHOTO).png and .html"; \
	echo "The demo took $$(( $$(date +%s) - start )) seconds, installation apart."

test: $(INSTALLED)
	$(BIN) -m pytest -m '$(QUICK)' $(AT_ONCE) $(ARGS)

test-slow: $(INSTALLED)
	$(BIN) -m pytest -m 'slow and not network and not gpu' $(AT_ONCE) $(ARGS)

# The model's own code, which is written for any backend of Keras, on JAX.
test-jax: $(INSTALLED)
	$(BIN) -m pip install --quiet --disable-pip-version-check -e '.[test,jax]'
	KERAS_BACKEND=jax $(BIN) -m pytest -m '$(QUICK)' $(AT_ONCE) \
	  $(JAX:%=tests/%.py) $(ARGS)

# The table of benchmarks/README.md and benchmarks/results.json; wants a quiet machine.
bench: $(INSTALLED)
	$(BIN) -c 'import torch' 2>/dev/null \
	  || $(BIN) -m pip install --quiet --disable-pip-version-check --retries 0 \
	    --index-url '$(TORCH_INDEX)' torch \
	  || echo 'No PyTorch from $(TORCH_INDEX): the one of PyPI follows, which is larger.'
	$(BIN) -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN) -m benchmarks $(ARGS)

check: $(INSTALLED)
	$(BIN) -m ruff check .
	$(BIN) -m ruff format --check .

format: $(INSTALLED)
	$(BIN) -m ruff check --fix .
	$(BIN) -m ruff format .

# Keeps what took long to make: prepared/ and experiments/runs/.
clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# Chain the stages from photos to captions; each target runs a verb of `show-attend-tell`.
#
#   make demo                    five photos, then drawn scenes; downloads packages only
#   make train EXPERIMENT=flickr8k_soft DATA=/path/to/flickr8k
#   make bench                   speed relative to baselines; ARGS=train_step for one row
#   make reproduce               the papers' claims; ROWS='scenes_soft scenes_mean' runs rows
#
# Variables: EXPERIMENT (a file in experiments/, without .toml), DATA (the folder of
# photos and captions; not for scenes), LIMIT (the first N photos of each split, in all
# stages), PYTHON (3.11 or newer), ARGS (more options of the named targets).

EXPERIMENT ?= scenes
DATA ?=
LIMIT ?=
PYTHON ?=
ARGS ?=
ROWS ?=
TORTURE_MINUTES ?= 8
FUZZ_MINUTES ?= 10

BIN := .venv/bin/python
INSTALLED := .venv/installed
# What tests, checks and the notebook need besides; "make demo" does without.
TESTED := .venv/installed-for-tests
CLI := $(BIN) -m show_attend_tell
NAMED := --experiment '$(EXPERIMENT)'
# Run earlier stages first if their data are given. LIMIT goes to all stages, and ARGS to
# the named ones; stages that they imply get --set and --limit, which all stages know.
CHAIN := $(if $(DATA),yes,$(filter scenes,$(EXPERIMENT)))
WORDS := $(subst --limit ,--limit=,$(subst --set ,--set=,$(ARGS)))
QUOTED := $(findstring ',$(ARGS))$(findstring ",$(ARGS))
SHARED := $(if $(QUOTED),,$(filter --set=% --limit=%,$(WORDS)))
own_args = $(if $(LIMIT),--limit '$(LIMIT)') $(if $(filter $@,$(MAKECMDGOALS)),$(ARGS),$(SHARED))
# Cases without a target of their own; of these "make test" leaves the nightly ones out.
GENERAL := not slow and not network and not gpu and not torture and not cluster
QUICK := $(GENERAL) and not nightly
JAX_CASES ?= $(QUICK)
JAX := test_benchmarks test_tpu models/decoding/ models/transformer/ \
	$(addprefix models/lstm/test_,attention decoder estimator hard_attention \
	recurrence_precision region_bias) \
	$(addprefix models/test_,captioner captioner_saving captioner_fit captioner_loss \
	generation) runtime/test_backend runtime/test_keras_startup \
	$(addprefix training/test_,calibration checkpoint distillation event_log initial_model \
	loop reranking resident_features step_jax train train_resume) \
	$(addprefix deployment/exports/test_,half_precision onnx) \
	siblings/common/test_step_jax \
	$(addprefix siblings/digits/ram/test_,model policy_gradient) \
	$(addprefix siblings/digits/draw/test_,bound filter_bank model) \
	$(addprefix siblings/words/test_,augmentation convolutions decoder generation model)
# Print the requirement of the compiler for TPUs by the installed JAX.
LIBTPU := from importlib.metadata import requires; \
	print(next(r for r in requires("jax") if r.startswith("libtpu")).partition(";")[0])
COMMA := ,
# Run one test file per core: most of the time is single-threaded compilation.
PARALLEL := -n logical --maxprocesses 4 --dist loadfile
FIGURES := experiments/runs/scenes/figures
PHOTOS_OF_DEMO := prepared/example_photos
DEMO_PHOTO := scene-test-00004
# PyTorch for CPUs only, a tenth of the size of the CUDA build.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

.PHONY: help demo prepare features train eval caption doctor reproduce \
	test nightly test-nightly test-without-siblings test-slow test-jax test-tpu test-cluster test-install test-floors torture fuzz audit check format clean bench dist docs docs-packages notebook
.DELETE_ON_ERROR:

help:
	@sed -n '2,/^$$/s/^# \{0,1\}//p' Makefile
	@echo "Targets: demo, prepare features train eval caption, doctor"
	@echo "test nightly, test-nightly test-without-siblings test-slow test-jax test-tpu test-cluster test-install test-floors torture fuzz"
	@echo "audit check format, bench reproduce, dist, docs notebook, clean"

# Bring a finished .venv up to date with setup.cfg. Otherwise, or with PYTHON, make one with
# the first Python 3.11 or newer that can make virtual environments.
$(INSTALLED): setup.cfg setup.py pyproject.toml
	@set -e; recent='import pip, sys; sys.exit(sys.version_info < (3, 11))'; \
	if [ -z "$(PYTHON)" ] && [ -e $(INSTALLED) ] && $(BIN) -c "$$recent" 2>/dev/null; then \
	  echo "setup.cfg has changed: bringing .venv up to date. Delete .venv to make it anew."; \
	else \
	  chosen=; reason="none of version 3.11 or newer was found; install Python 3.11+"; \
	  for python in "$(PYTHON)" $(if $(PYTHON),,python3 python3.13 python3.12 python3.11 python); do \
	    [ -n "$$python" ] || continue; \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	    if "$$python" -c 'import venv, ensurepip' 2>/dev/null; then chosen=$$python; break; fi; \
	    reason="$$python cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv"; \
	  done; \
	  if [ -z "$$chosen" ]; then echo "error: no usable Python: $$reason, or name one by PYTHON=..." >&2; exit 1; fi; \
	  echo "Installing TensorFlow and about 75 other packages into .venv with $$chosen:"; \
	  echo "0.8 GB to download, 2.8 GB on disk, 2 to 5 minutes. Delete .venv to undo it."; \
	  "$$chosen" -m venv --clear .venv; \
	fi; \
	$(BIN) .ci/install.py -e '.[train]'; \
	touch $(INSTALLED)

$(TESTED): $(INSTALLED)
	@echo "Installing what tests and checks need: 80 packages more, 0.2 GB to download, 0.6 GB on disk."
	$(BIN) .ci/install.py -e '.[test]'
	touch $(TESTED)

prepare: $(INSTALLED)
	$(CLI) prepare $(NAMED) $(if $(DATA),--data '$(DATA)') $(filter-out --resume --overwrite,$(own_args))

features: $(INSTALLED) $(if $(CHAIN),prepare)
	$(CLI) features $(NAMED) $(filter-out --resume,$(own_args))

train: $(INSTALLED) $(if $(CHAIN),features)
	$(CLI) train $(NAMED) $(own_args)

eval: $(INSTALLED)
	$(CLI) eval $(NAMED) $(filter-out --resume --overwrite,$(own_args))

# make caption PHOTOS='one.jpg folder/'
caption: $(INSTALLED)
	$(CLI) caption --model 'experiments/runs/$(EXPERIMENT)/model.safetensors' $(ARGS) $(PHOTOS)

doctor: $(INSTALLED)
	$(CLI) doctor

# Caption photos with the shipped model, then run all stages on drawn scenes; replaces an
# earlier demo.
demo: $(INSTALLED)
	@set -e; start=$$(date +%s); \
	$(BIN) -m data_prep.scenes.example_pictures $(PHOTOS_OF_DEMO); \
	$(CLI) caption --attention prepared/example_figures --format png $(PHOTOS_OF_DEMO)/*.jpg; \
	echo "That took $$(( $$(date +%s) - start )) seconds. Now drawn scenes: prepare, train, score."; \
	$(CLI) prepare --experiment scenes; \
	$(CLI) features --experiment scenes; \
	$(CLI) train --experiment scenes --overwrite; \
	$(CLI) eval --experiment scenes; \
	$(CLI) caption --model experiments/runs/scenes/model.safetensors \
	  --attention $(FIGURES) --html $(FIGURES)/$(DEMO_PHOTO).html \
	  prepared/scenes/photos/$(DEMO_PHOTO).jpg; \
	echo "Attention per word: $(FIGURES)/$(DEMO_PHOTO).png and .html"; \
	echo "The demo took $$(( $$(date +%s) - start )) seconds without installation."

test: $(TESTED)
	$(BIN) -m pytest -m '$(QUICK)' $(PARALLEL) $(ARGS)

# Run all that "make test" leaves out, one target after the other; if one fails, the
# others still run.
nightly: $(TESTED)
	$(MAKE) --keep-going -j1 test-nightly test-slow test-jax test-tpu test-cluster torture \
	  test-without-siblings \
	  test-install test-floors JAX_CASES='$(GENERAL)'

# The rest works in a copy without the plug-ins of the package.
test-without-siblings: $(TESTED)
	$(BIN) .ci/without_siblings.py -m '$(QUICK)' $(PARALLEL) $(ARGS)

# Run the further cases of each matrix.
test-nightly: $(TESTED)
	$(BIN) -m pytest -m 'nightly and $(GENERAL)' $(PARALLEL) $(ARGS)

test-slow: $(TESTED) docs-packages
	$(BIN) -m pytest -m 'slow and not network and not gpu and not cluster' $(PARALLEL) $(ARGS)

# Install the package in new environments, with packages from PyPI.
test-install: $(TESTED)
	$(BIN) -m pytest -m network tests/test_wheel.py $(ARGS)

# Hostile files and callers, kills and full disks; more cases by TORTURE_MINUTES=30.
torture: $(TESTED)
	TORTURE_MINUTES='$(TORTURE_MINUTES)' $(BIN) -m pytest -m torture -n 2 --dist loadfile \
	  tests/torture --deselect tests/torture/test_fuzz.py::test_edited_files_are_refused_or_read $(ARGS)

# Change hostile files at random; findings become cases in tests/torture/fuzz_cases/.
fuzz: $(TESTED)
	FUZZ_MINUTES='$(FUZZ_MINUTES)' $(BIN) -m pytest -m torture tests/torture/test_fuzz.py $(ARGS)

# Ask the package index for known holes; print where none answers.
audit: $(INSTALLED)
	$(BIN) .ci/audit.py

# Install the lowest versions of setup.cfg into a new environment and run a selection.
test-floors: $(TESTED)
	$(BIN) -m pip install --quiet --disable-pip-version-check uv
	$(BIN) -m pytest -m network tests/test_floors.py $(ARGS)

# Test models and training on JAX.
test-jax: $(TESTED)
	$(BIN) -m pip install --quiet --disable-pip-version-check -e '.[test,jax]'
	KERAS_BACKEND=jax $(BIN) -m pytest -m '$(JAX_CASES)' $(PARALLEL) \
	  $(patsubst %,tests/%,$(filter %/,$(JAX)) $(addsuffix .py,$(filter-out %/,$(JAX)))) $(ARGS)

# Compile for TPUs, without a TPU: about half an hour. The compiler that JAX names
# has a folder of its own, as JAX would look for a TPU in every process that finds it.
# ARGS=--document writes the table of docs/scale.md.
test-tpu: $(TESTED)
	$(BIN) -m pip install --quiet --disable-pip-version-check -e '.[test,jax]'
	@set -e; compiler=$$($(BIN) -c '$(LIBTPU)'); \
	if [ ! -e ".venv/tpu/$$compiler" ]; then \
	  $(BIN) -m pip install --quiet --disable-pip-version-check --upgrade \
	    --no-deps --target .venv/tpu "$$compiler"; \
	  touch ".venv/tpu/$$compiler"; \
	fi
	PYTHONPATH=.venv/tpu $(BIN) -m benchmarks.tpu $(ARGS)

# Run workers on two nodes of a Ray cluster on this machine, and kill some.
test-cluster: $(TESTED)
	$(BIN) -m pip install --quiet --disable-pip-version-check -e '.[test,jax,cluster]'
	$(BIN) -m pytest -m cluster $(ARGS)

# Measure the table in benchmarks/README.md; needs an idle machine.
bench: $(INSTALLED)
	$(BIN) -c 'import torch' 2>/dev/null || $(if $(findstring gpu,$(ARGS)),true,false) \
	  || $(BIN) -m pip install --quiet --disable-pip-version-check --retries 0 \
	    --index-url '$(TORCH_INDEX)' torch \
	  || echo 'No PyTorch at $(TORCH_INDEX): installing the larger build from PyPI.'
	$(BIN) -m pip install --quiet --disable-pip-version-check \
	  -e '.[bench$(if $(findstring cluster,$(ARGS)),$(COMMA)jax$(COMMA)cluster)$(if $(findstring gpu,$(ARGS)),$(COMMA)jax)]' \
	  $(if $(findstring gpu,$(ARGS)),'jax[cuda12]')
	$(BIN) -m benchmarks $(ARGS)

# List the rows of docs/reproduction.md, or run ROWS and write the page again.
reproduce: $(INSTALLED)
	$(BIN) research/reproduction.py $(ROWS) $(if $(DATA),--data '$(DATA)') $(ARGS)

# Build the documentation site in site/, without a network once packages and ONNX Runtime are fetched.
docs: docs-packages
	NO_MKDOCS_2_WARNING=1 $(BIN) -m mkdocs build --strict

# The packages of the site, whose pages the slow tests open in a browser.
docs-packages: $(INSTALLED)
	$(BIN) -c 'import latex2mathml, material, mkdocs_jupyter, mkdocstrings_handlers, onnx' 2>/dev/null \
	  || $(BIN) -m pip install --quiet --disable-pip-version-check -e '.[docs]'

# Run the notebook and store its outputs.
notebook: $(TESTED)
	$(BIN) docs/execute_notebook.py

# Lint, and check formatting, the order of imports (the contracts in pyproject.toml) and types.
check: $(TESTED)
	$(BIN) -m ruff check .
	$(BIN) -m ruff format --check .
	$(BIN) -c 'from importlinter.cli import lint_imports_command as lint; lint()' --no-logo
	$(BIN) -m mypy

format: $(TESTED)
	$(BIN) -m ruff check --fix --exit-zero --silent .
	$(BIN) -m ruff format .
	$(BIN) -m ruff check .

# Build the wheel that `pip install dist/*.whl` installs anywhere.
dist: $(INSTALLED)
	rm -rf build dist
	$(BIN) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@du -h dist/*.whl

# Keep prepared/ and experiments/runs/, which took long to make.
clean:
	rm -rf .venv build dist site *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

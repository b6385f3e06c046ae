"""Compare the working tree with an earlier revision, before and after a refactoring.

Usage, from the root of the repository::

    python -m research.freeze --data FLICKR8K --out FOLDER --quick
    python -m research.freeze --data FLICKR8K --out FOLDER

``FLICKR8K`` has the files of the two archives of Flickr8k, extracted. The first run
records a baseline from a git worktree of the revision, in ``FOLDER``; later runs reuse
it, record the working tree in the same way and print what differs:

- *sentences* (:mod:`research.freeze.sentences`): captions of dev photos by both engines
  and both shipped models, with log p;
- *scores* (:mod:`research.freeze.scores`): ``eval`` of the four shipped models on the
  dev list, without ``--quick``;
- *transcript* (:mod:`research.freeze.transcript`): every command of README.md and
  docs/, from the documents of the tree that runs it.

Everything goes through the command line, the part of the project that stays while
files and formats change. Changed sentences and scores, and commands that fail and did
not, make the exit status 1; other differences of the transcript are printed for a
person to read, and belong into CHANGELOG.md.
"""

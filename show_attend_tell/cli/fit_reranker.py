"""Define the verb ``fit-reranker``."""

import click

from show_attend_tell.cli.options import (
    PATH,
    experiment_option,
    load_settings,
    set_option,
    start_tensorflow,
    work_option,
)


@click.command("fit-reranker")
@experiment_option
@set_option
@work_option
@click.option(
    "--out",
    type=PATH,
    metavar="FILE.npz",
    help="File to write; by default beside the features: reranker-<encoder>.npz.",
)
def fit_reranker(experiment, changes, work, out) -> None:
    """Learn to rank the hypotheses of a beam, for --reranker of eval and caption.

    Predicts from the features of a photo which n-grams its captions have. The
    hypothesis of highest expected CIDEr then moves up. Needs prepare and features.
    """
    settings = load_settings(experiment, changes)
    start_tensorflow()
    from show_attend_tell.reference.reranker import save_reranker
    from show_attend_tell.training.reranking import fit_reranker as fit
    from show_attend_tell.training.reranking import reranker_path

    out = out or reranker_path(settings, work)
    if out.exists() and not out.is_file():
        raise click.UsageError(f"--out must be a file. Received: {out}")
    reranker = fit(settings, work)
    save_reranker(reranker, out)
    sizes = f"{len(reranker.landmarks)} photos, {len(reranker.basis)} n-grams"
    click.echo(f"{click.format_filename(out)}: {sizes}")

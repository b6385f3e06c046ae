"""List the shipped experiments in the help of verbs."""

import click

from show_attend_tell.config.shipped import experiment_summary, shipped_experiments


class ExperimentCommand(click.Command):
    """A verb whose ``--help`` ends with the shipped experiments."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the epilog, and a table of the experiments."""
        super().format_epilog(ctx, formatter)
        files = shipped_experiments()
        if files:
            with formatter.section("Experiments"):
                formatter.write_dl(
                    [(name, experiment_summary(file)) for name, file in files.items()]
                )

"""Options that are given once: of two, one would count, and nobody would be told which."""

from collections import Counter

import click


class OnceCommand(click.Command):
    """Refuses an option that is given again, unless several are meant to be."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            self._check_once(ctx, args)
        return super().parse_args(ctx, args)

    def _check_once(self, ctx: click.Context, args: list[str]) -> None:
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for each, times in Counter(given).items():
            if times > 1 and isinstance(each, click.Option) and not _may_be_again(each):
                raise click.UsageError(f"{each.opts[0]} is given {times} times; give it once", ctx)


def _may_be_again(each: click.Option) -> bool:
    return each.multiple or each.count or each.is_flag

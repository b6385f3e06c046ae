"""Search with Keras captioners in NumPy, without a graph to trace."""

import dataclasses

from show_attend_tell.config.captioner import SavedConfig
from show_attend_tell.reference import generator
from show_attend_tell.reference.captioner import Captioner, layout
from show_attend_tell.reference.model_file import parse_config


def search(self, annotations, decoding, noise, regions=None, photos=None):
    """Search as :meth:`models.generator.Generator.search` does, which this replaces."""
    members = [_in_numpy(member) for member in self.members]
    quick = generator.Generator(members, self.mirror)
    return quick.search(annotations, decoding, noise, regions)


def _in_numpy(member):
    """Return a captioner of the present weights of one in Keras."""
    values = member.get_config()
    names = [field.name for field in dataclasses.fields(SavedConfig)]
    config = parse_config({name: values[name] for name in names})
    weights = [name for name, _ in layout(config)]
    arrays = dict(zip(weights, member.get_weights(), strict=True))
    return Captioner(config, member.encoder_identity, arrays)

"""Read and edit XMP packets: the caption of a photo, and who wrote it.

Three fields carry the caption: ``dc:description`` and
``Iptc4xmpCore:AltTextAccessibility``, which photo programs show, and a copy in a
namespace of this package, beside its confidence. The words of a person are recognised
by the copy: it is absent, or differs from the other fields, since photo programs do not
edit it. exiftool writes no copy; there ``xmp:CreatorTool`` names this package, and the
two fields are equal until a person edits one.

Tags are keywords: ``dc:subject``, and digiKam's own list where a packet has one, since
digiKam then reads no other. They stand beside the keywords of a person, which are never
removed or repeated; a copy of the tags that this package added tells them apart, and
shows which of them a person has removed.

XMP is RDF in XML (ISO 16684-1). A packet of unknown origin may name files, expand
entities or be very large: document types are refused, entities are not resolved,
nothing is fetched, and size and depth are limited.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence

from lxml import etree

from show_attend_tell.inference.camera_descriptions import is_default
from show_attend_tell.runtime.errors import CaptionError, one_line

MAX_BYTES = 10_000_000  # of one packet; photo programs write a few thousand
PROGRAM = "show-attend-tell"

_X = "adobe:ns:meta/"
_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_DC = "http://purl.org/dc/elements/1.1/"
_IPTC = "http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/"
_XMP = "http://ns.adobe.com/xap/1.0/"
_EXIF = "http://ns.adobe.com/exif/1.0/"
_TIFF = "http://ns.adobe.com/tiff/1.0/"
_PHOTOSHOP = "http://ns.adobe.com/photoshop/1.0/"
_ACDSEE = "http://ns.acdsee.com/iptc/1.0/"
_NOTE = "http://ns.adobe.com/xmp/note/"
_DIGIKAM = "http://www.digikam.org/ns/1.0/"
_OWN = "urn:show-attend-tell:xmp:1.0:"
_PREFIXES = {
    _DC: "dc",
    _IPTC: "Iptc4xmpCore",
    _XMP: "xmp",
    _DIGIKAM: "digiKam",
    _OWN: "sat",
}

_DESCRIPTION = f"{{{_DC}}}description"
_ALT_TEXT = f"{{{_IPTC}}}AltTextAccessibility"
_TOOL = f"{{{_XMP}}}CreatorTool"
# Fields in which a person describes a photo, and those of them that repeat EXIF fields,
# which cameras fill in too.
_CAMERA_FIELDS = (f"{{{_EXIF}}}UserComment", f"{{{_TIFF}}}ImageDescription")
_FIELDS = (
    _DESCRIPTION,
    _ALT_TEXT,
    f"{{{_IPTC}}}ExtDescrAccessibility",
    *_CAMERA_FIELDS,
    f"{{{_ACDSEE}}}caption",
    f"{{{_DC}}}title",
    f"{{{_PHOTOSHOP}}}Headline",
)
_COPY = f"{{{_OWN}}}Caption"
_MADE_BY = f"{{{_OWN}}}MadeBy"
_CONFIDENCE = f"{{{_OWN}}}Confidence"
_PHOTO = f"{{{_OWN}}}Photo"
_TAGS = f"{{{_OWN}}}Tags"
_SUBJECT = f"{{{_DC}}}subject"
_TAGS_LIST = f"{{{_DIGIKAM}}}TagsList"
_NODE, _LI, _ALT = (f"{{{_RDF}}}{name}" for name in ("Description", "li", "Alt"))
_BAG, _SEQ = (f"{{{_RDF}}}{name}" for name in ("Bag", "Seq"))
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"

# The wrapper of ISO 16684-1, 7.3; `begin` is U+FEFF, the id is fixed.
_BEGIN = b'<?xpacket begin="\xef\xbb\xbf" id="W5M0MpCehiHzreSzNTczkc9d"?>\n'
_END = b'\n<?xpacket end="w"?>\n'
_EMPTY = (
    f'<x:xmpmeta xmlns:x="{_X}" x:xmptk="{PROGRAM}"><rdf:RDF xmlns:rdf="{_RDF}">'
    '<rdf:Description rdf:about=""/></rdf:RDF></x:xmpmeta>'
)
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class XmpPacket:
    """The fields of one packet; it keeps all other fields."""

    def __init__(self, content: bytes | None = None):
        """Parse a packet.

        Args:
            content: the packet in XML; None makes a packet without fields.

        Raises:
            CaptionError: the packet is not XMP, exceeds a limit, or has a document
                type.
        """
        # The tree keeps the processing instructions around the root, the wrapper among
        # them.
        self._tree = etree.ElementTree(_parse(content or _EMPTY.encode()))
        if self._tree.docinfo.doctype:
            raise CaptionError("has a document type, which XMP does not allow")
        # The root is x:xmpmeta, or rdf:RDF itself, which ISO 16684-1 allows too.
        rdf = next(self._tree.getroot().iter(f"{{{_RDF}}}RDF"), None)
        if rdf is None:
            raise CaptionError("has no rdf:RDF, so it is not XMP")
        self._rdf: etree._Element = rdf

    @property
    def made_by(self) -> str:
        """The model and settings that wrote the caption, empty for other words."""
        # A person has replaced the caption, though its copy and its author are still
        # there.
        if self.words():
            return ""
        return self._own(_MADE_BY) or (self._tool() if self._copy() else "")

    @property
    def caption(self) -> str:
        """The caption that this package wrote, empty if there is none."""
        return "" if self.words() else self._copy()

    @property
    def confidence(self) -> float | None:
        """The confidence of the caption that this package wrote, None if unknown."""
        value = "" if self.words() else self._own(_CONFIDENCE)
        with contextlib.suppress(ValueError):
            return float(value)
        return None

    @property
    def tags(self) -> tuple[str, ...]:
        """The keywords that this package added, and nobody has removed since."""
        # The copy of the tags still has those that a person has removed from the
        # keywords.
        kept = set(self.keywords)
        return tuple(tag for tag in self._values(_TAGS) if tag in kept)

    @property
    def keywords(self) -> tuple[str, ...]:
        """All keywords, also those of a person."""
        return tuple(self._values(_SUBJECT))

    @property
    def photo(self) -> str:
        """What recognises the photo that the caption describes, empty if unknown."""
        return self._own(_PHOTO)

    def words(self) -> str:
        """Return the words of a person, empty for none."""
        if edited := self.edited():
            return edited
        texts = (
            words for words, camera in self.texts() if not is_default(words, camera)
        )
        return next(texts, "")

    def edited(self) -> str:
        """Return the words by which a person replaced a caption, of any shape."""
        copy = self._own(_COPY)
        if not copy:
            return ""
        # Titles and other fields are not compared: this package never writes them.
        values = [*self._values(_DESCRIPTION), *self._values(_ALT_TEXT)]
        return next(
            (text.strip() for text in values if text.strip() and text != copy), ""
        )

    def texts(self) -> Iterator[tuple[str, bool]]:
        """Yield the descriptions and titles that this package did not write.

        Each is stripped, and has whether its field is one that cameras fill in.
        """
        copy = self._copy()
        for field in _FIELDS:
            for value in self._values(field):
                if value.strip() and value != copy:
                    yield value.strip(), field in _CAMERA_FIELDS

    def _copy(self) -> str:
        """Return the caption that this package wrote, though a person may edit it."""
        if copy := self._own(_COPY):
            return copy
        descriptions = self._values(_DESCRIPTION)
        alternatives = self._values(_ALT_TEXT)
        both = descriptions and alternatives
        if both and len({*descriptions, *alternatives}) == 1 and self._tool():
            return descriptions[0]
        return ""

    def _tool(self) -> str:
        """Return the model and settings in ``xmp:CreatorTool``, empty for others."""
        start = creator_tool("")
        tool = self._own(_TOOL)
        return tool.removeprefix(start) if tool.startswith(start) else ""

    def set_caption(
        self,
        sentence: str,
        made_by: str = "",
        confidence: float | None = None,
        photo: str = "",
    ) -> None:
        """Replace the caption.

        ``xmp:CreatorTool`` is written unless another program wrote it.

        Args:
            sentence: the caption as a person reads it, in English.
            made_by: the model and settings; empty for the words of a person.
            confidence: of the caption, None if unknown.
            photo: what recognises the photo.

        Raises:
            CaptionError: the packet is the first of several parts.
        """
        if self._values(f"{{{_NOTE}}}HasExtendedXMP"):
            raise CaptionError("is one of several parts (extended XMP)")
        # lxml refuses characters that XML cannot contain.
        sentence = _NOT_XML.sub("", sentence)
        made_by = _NOT_XML.sub("", made_by)
        for field in (_DESCRIPTION, _ALT_TEXT):
            alternatives = etree.SubElement(self._replaced(field), _ALT)
            for language in ("x-default", "en"):  # the default comes first
                item = etree.SubElement(alternatives, _LI, {_LANGUAGE: language})
                item.text = sentence
        number = "" if confidence is None else f"{confidence:.6f}"
        own = {_COPY: sentence, _MADE_BY: made_by, _CONFIDENCE: number, _PHOTO: photo}
        for field, text in own.items():
            element = self._replaced(field)
            if made_by and text:
                element.text = text
            else:
                _remove(element)
        # True also if the packet names no program.
        if all(tool.startswith(PROGRAM) for tool in self._values(_TOOL)):
            element = self._replaced(_TOOL)
            if made_by:
                element.text = creator_tool(made_by)
            else:  # no trace of an earlier caption is left beside a person's words
                _remove(element)

    def remove_caption(self) -> None:
        """Remove the caption that this package wrote; keep every word of a person."""
        copy = self._own(_COPY)
        for field in (_DESCRIPTION, _ALT_TEXT):
            # Every language is as this package wrote it.
            if set(self._values(field)) == {copy}:
                _remove(self._replaced(field))
                continue
            for node in self._nodes():  # a person edited one of the languages
                for element in node.iterchildren(field):
                    # A list, since removing an element ends the iteration over its
                    # neighbours.
                    for item in list(element.iter(_LI)):
                        if "".join(item.itertext()) == copy:
                            _remove(item)
        for field in (_COPY, _MADE_BY, _CONFIDENCE, _PHOTO):
            _remove(self._replaced(field))
        if all(tool.startswith(PROGRAM) for tool in self._values(_TOOL)):
            _remove(self._replaced(_TOOL))

    def set_tags(self, tags: Sequence[str]) -> None:
        """Replace the keywords that this package added; keep all others.

        Args:
            tags: a keyword that a person has, in whatever case, or has removed, is not
                added again.
        """
        earlier = self._values(_TAGS)
        if not tags and not earlier:
            return
        # The copy keeps them too, so that they do not come back at the next run.
        rejected = [tag for tag in earlier if tag not in self.keywords]
        clean = [_NOT_XML.sub("", tag).strip() for tag in tags if tag not in rejected]
        clean = [tag for tag in clean if tag]
        # A person may have the same keyword: what was added is less than what was asked
        # for.
        added = self._exchange(_SUBJECT, _BAG, earlier, clean)
        if self._values(_TAGS_LIST):
            self._exchange(_TAGS_LIST, _SEQ, earlier, added)
        element = self._replaced(_TAGS)
        if added or rejected:
            _append(etree.SubElement(element, _BAG), [*added, *rejected])
        else:
            _remove(element)

    def _exchange(
        self, field: str, kind: str, earlier: Sequence[str], tags: Sequence[str]
    ) -> list[str]:
        """Remove earlier items of a list and append others; return what was appended.

        The items that remain keep their attributes, such as their language.
        """
        for node in self._nodes():
            for element in node.iterchildren(field):
                for item in list(element.iter(_LI)):
                    if "".join(item.itertext()) in earlier:
                        _remove(item)
        values = [value for value in self._values(field) if value.strip()]
        present = {_folded(value) for value in values}
        added: list[str] = []
        for tag in tags:
            if _folded(tag) not in present:
                added.append(tag)
                present.add(_folded(tag))
        lists = [
            found
            for node in self._nodes()
            for element in node.iterchildren(field)
            for found in element.iterchildren(_BAG, _SEQ, _ALT)
        ]
        if lists:
            _append(lists[0], added)
        elif values or added:  # a plain value or an attribute becomes a list
            _append(etree.SubElement(self._replaced(field), kind), [*values, *added])
        if not values and not added:
            _remove(self._replaced(field))
        return added

    def to_bytes(self) -> bytes:
        """Return the packet in UTF-8, in the wrapper of XMP."""
        xml = etree.tostring(self._tree, encoding="UTF-8", xml_declaration=False)
        # A packet that was read brings its own wrapper.
        return xml if xml.startswith(b"<?xpacket") else _BEGIN + xml + _END

    def _own(self, field: str) -> str:
        return next(iter(self._values(field)), "")

    def _values(self, field: str) -> list[str]:
        """Return the texts of a field, in every form that RDF allows."""
        texts = []
        for node in self._nodes():
            # RDF has a plain value as an attribute of its node too.
            texts += [node.attrib[field]] if field in node.attrib else []
            for element in node.iterchildren(field):
                # Alt, Bag and Seq have items; a plain value is the element's own text.
                items = list(element.iter(_LI)) or [element]
                texts += ["".join(item.itertext()) for item in items]
        return texts

    def _replaced(self, field: str) -> etree._Element:
        """Remove a field and return a new, empty element of it."""
        nodes = self._nodes()
        for node in nodes:
            node.attrib.pop(field, None)
            for element in list(node.iterchildren(field)):
                node.remove(element)
        # The new element belongs to a node that is a description; a packet may have
        # none.
        first = next((node for node in nodes if node.tag == _NODE), None)
        if first is None:
            first = etree.SubElement(self._rdf, _NODE, {f"{{{_RDF}}}about": ""})
        namespace = etree.QName(field).namespace or ""
        return etree.SubElement(first, field, nsmap={_PREFIXES[namespace]: namespace})

    def _nodes(self) -> list[etree._Element]:
        # Without the comments between them.
        return list(self._rdf.iterchildren(etree.Element))


def _remove(element: etree._Element) -> None:
    """Remove an element from its parent."""
    parent = element.getparent()
    if parent is not None:
        parent.remove(element)


def _append(parent: etree._Element, values: Sequence[str]) -> None:
    """Append items to a list of RDF."""
    for value in values:
        etree.SubElement(parent, _LI).text = value


def _folded(keyword: str) -> str:
    """Return what equal keywords share: digiKam's are paths, such as Animals/Dog."""
    return keyword.strip().rpartition("/")[2].casefold()


def creator_tool(made_by: str) -> str:
    """Return the value of ``xmp:CreatorTool`` for a model and its settings."""
    return f"{PROGRAM}, {made_by}"


def _parse(content: bytes) -> etree._Element:
    """Parse XML without resolving entities or fetching anything."""
    if len(content) > MAX_BYTES:
        raise CaptionError(f"has more than {MAX_BYTES:,} bytes")
    # huge_tree stays off, as libxml2 then limits depth and the sizes of texts.
    parser = etree.XMLParser(
        resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False
    )
    try:
        return etree.fromstring(content, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise CaptionError(f"is not XML: {one_line(error, 120)}") from None

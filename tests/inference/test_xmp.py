"""XMP packets: fields, words of a person, and hostile content."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from refusals import refused

from show_attend_tell.inference.xmp import MAX_BYTES, XmpPacket
from show_attend_tell.runtime.errors import CaptionError

MADE_BY = "flickr8k.safetensors 0123456789ab, beam 5"
PACKET = """<?xml version="1.0" encoding="UTF-8"?>
<!-- by a person -->
<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="XMP Core 4.4.0-Exiv2">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about=""
    xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmlns:dc="http://purl.org/dc/elements/1.1/"
    xmlns:unknown="http://example.org/" xmp:Rating="4" unknown:note="a&#10;b"
    {attributes}>
   <dc:subject><rdf:Bag><rdf:li>holiday</rdf:li></rdf:Bag></dc:subject>
   {elements}
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>"""
NOTE = "http://ns.adobe.com/xmp/note/"
ALT = (
    "<dc:description><rdf:Alt><rdf:li xml:lang='x-default'>{}</rdf:li></rdf:Alt>"
    "</dc:description>"
)


def packet(elements="", attributes="") -> bytes:
    return PACKET.format(elements=elements, attributes=attributes).encode()


def test_a_caption_is_read_back_with_its_author():
    xmp = XmpPacket()
    assert (xmp.words(), xmp.caption, xmp.made_by) == ("", "", "")
    xmp.set_caption("A dog & a <ball>.", MADE_BY)
    again = XmpPacket(xmp.to_bytes())
    assert again.words() == ""
    assert (again.caption, again.made_by) == ("A dog & a <ball>.", MADE_BY)


def test_a_caption_is_replaced_and_never_repeated():
    xmp = XmpPacket(packet(attributes="dc:description='old'"))
    for text in ("One.", "Two."):
        xmp.set_caption(text, MADE_BY)
        content = xmp.to_bytes()
        assert content.count(b"<dc:description") == 1
        assert content.count(text.encode()) == 5  # two languages twice, and the copy
        xmp = XmpPacket(content)
    assert b"One." not in content
    assert b"old" not in content


def test_other_fields_comments_and_prefixes_are_kept():
    xmp = XmpPacket(packet())
    xmp.set_caption("A dog.", MADE_BY)
    content = xmp.to_bytes().decode()
    for kept in (
        'xmp:Rating="4"',
        'unknown:note="a&#10;b"',
        "holiday",
        "a person",
    ):
        assert kept in content
    assert content.count("<?xpacket") == 2


@pytest.mark.parametrize(
    "elements",
    [
        ALT.format("A person wrote this"),
        "<dc:description>A person wrote this</dc:description>",
        "<dc:description><rdf:Alt><rdf:li xml:lang='de'>A person wrote this</rdf:li>"
        "</rdf:Alt></dc:description>",
        ALT.format("A person wrote this").replace(
            "dc:description>", "i:AltTextAccessibility>"
        ),
    ],
)
def test_words_of_a_person_are_found_in_every_form(elements):
    namespace = "xmlns:i='http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/'"
    xmp = XmpPacket(packet(elements, namespace))
    assert xmp.words() == "A person wrote this"
    assert xmp.made_by == ""


def test_words_in_an_attribute_or_a_second_node_are_found():
    assert XmpPacket(packet(attributes="dc:description='Hers'")).words() == "Hers"
    second = "</rdf:Description><rdf:Description>" + ALT.format("His")
    namespace = "xmlns:dc='http://purl.org/dc/elements/1.1/'"
    second = second.replace("<dc:description", f"<dc:description {namespace}")
    assert XmpPacket(packet(second)).words() == "His"


def test_blank_descriptions_are_no_words():
    assert XmpPacket(packet(ALT.format(" "))).words() == ""


@pytest.mark.parametrize("field", ["description", "AltTextAccessibility"])
def test_a_caption_edited_by_a_person_is_the_persons(field):
    xmp = XmpPacket()
    xmp.set_caption("A dog.", MADE_BY)
    root = etree.fromstring(xmp.to_bytes())
    for element in root.iter("{*}" + field):
        next(element.iter("{*}li")).text = "Our dog Rex."
    edited = XmpPacket(etree.tostring(root))
    assert edited.words() == "Our dog Rex."
    assert (edited.made_by, edited.caption) == ("", "")


def test_the_creator_tool_of_another_program_is_kept():
    xmp = XmpPacket(packet(attributes="xmp:CreatorTool='digiKam-8.4'"))
    xmp.set_caption("A dog.", MADE_BY)
    assert b"CreatorTool='digiKam-8.4'" in xmp.to_bytes().replace(b'"', b"'")
    assert xmp.to_bytes().count(b"CreatorTool") == 1
    new = XmpPacket()
    new.set_caption("A dog.", "older")
    new.set_caption("A dog.", MADE_BY)
    assert f">show-attend-tell, {MADE_BY}</xmp:CreatorTool>".encode() in new.to_bytes()
    assert b"older" not in new.to_bytes()


DOCTYPE = '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/hostname">]>'
LAUGHS = (
    '<!DOCTYPE x [<!ENTITY a "haha">'
    + "".join(f'<!ENTITY {chr(98 + k)} "{f"&{chr(97 + k)};" * 20}">' for k in range(12))
    + "]>"
)


ENTITIES = [
    prefix + packet(elements).decode().partition("?>")[2]
    for prefix, elements in (
        (DOCTYPE, ALT.format("&e;")),
        (DOCTYPE.replace("file:///etc/hostname", "http://127.0.0.1:9/x"), "&e;"),
        ('<!DOCTYPE x SYSTEM "http://127.0.0.1:9/x.dtd">', ""),
        (LAUGHS, ALT.format("&m;")),
    )
]


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "content",
    [
        *(text.encode(name) for text in ENTITIES for name in ("utf-8", "utf-16")),
        b"<a/>",
        b"\0",
        b"\xff\xfe",
        b"JFIF" * 99,
        packet()[:-20],
        b"<a>" * 100_000,
        b"<x>" + b" " * MAX_BYTES + b"</x>",
    ],
)
def test_entities_and_other_content_are_refused_in_one_line(content):
    with refused(CaptionError) as caught:
        XmpPacket(content)
    assert len(str(caught.value)) < 200


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_every_text_makes_a_packet_that_can_be_read(sentence, made_by):
    xmp = XmpPacket()
    xmp.set_caption(sentence, f"m{made_by}", 0.5)
    assert XmpPacket(xmp.to_bytes()).words() == ""
    assert XmpPacket(xmp.to_bytes()).confidence == 0.5


def test_a_caption_without_a_model_is_the_words_of_a_person():
    xmp = XmpPacket()
    xmp.set_caption("A dog.", "m", 0.5)
    xmp.set_caption("Rex.")
    again = XmpPacket(xmp.to_bytes())
    assert (again.words(), again.made_by, again.caption) == ("Rex.", "", "")
    assert again.confidence is None


def test_the_first_of_several_parts_is_read_but_not_changed():
    attributes = f"xmlns:n='{NOTE}' n:HasExtendedXMP='A'"
    words = "<dc:description>Rex</dc:description>"
    assert XmpPacket(packet(words, attributes)).words() == "Rex"
    with pytest.raises(CaptionError, match="several parts"):
        XmpPacket(packet(attributes=attributes)).set_caption("A dog.", "m")


def keywords_of(content: bytes) -> list[str]:
    """The items of dc:subject, as another program reads them."""
    items = etree.fromstring(content).iterfind(
        ".//{http://purl.org/dc/elements/1.1/}subject//{*}li"
    )
    return [item.text for item in items]


def test_tags_stand_beside_the_keywords_of_a_person_and_are_replaced():
    xmp = XmpPacket(packet())
    xmp.set_caption("A dog.", MADE_BY)
    xmp.set_tags(["dog", "Holiday"])  # in whatever case, a person has that one
    first = xmp.to_bytes()
    assert keywords_of(first) == ["holiday", "dog"]
    again = XmpPacket(first)
    assert again.tags == ("dog",)
    again.set_tags(["dog", "Holiday"])
    assert keywords_of(again.to_bytes()) == ["holiday", "dog"]
    again.set_tags(["lake"])
    assert keywords_of(again.to_bytes()) == ["holiday", "lake"]
    again.set_tags([])
    assert keywords_of(again.to_bytes()) == ["holiday"]
    assert again.tags == ()
    assert b"Tags" not in again.to_bytes()


@pytest.mark.parametrize(
    "elements",
    [
        "<dc:subject><rdf:Bag><rdf:li>lake</rdf:li></rdf:Bag></dc:subject>",
        "<dc:subject><rdf:Seq><rdf:li>lake</rdf:li></rdf:Seq></dc:subject>",
        "<dc:subject>lake</dc:subject>",
        "",
    ],
)
def test_keywords_in_every_form_are_kept(elements):
    bag = b"<dc:subject><rdf:Bag><rdf:li>holiday</rdf:li></rdf:Bag></dc:subject>"
    content = packet(elements, "" if elements else "dc:subject='lake'")
    xmp = XmpPacket(content.replace(bag, b""))
    xmp.set_tags(["dog"])
    assert keywords_of(xmp.to_bytes()) == ["lake", "dog"]
    assert xmp.to_bytes().count(b"<dc:subject") == 1


def test_a_keyword_keeps_its_attributes():
    elements = "<dc:subject><rdf:Bag><rdf:li xml:lang='de'>See</rdf:li></rdf:Bag>"
    bag = b"<dc:subject><rdf:Bag><rdf:li>holiday</rdf:li></rdf:Bag></dc:subject>"
    xmp = XmpPacket(packet(elements + "</dc:subject>").replace(bag, b""))
    xmp.set_tags(["dog"])
    assert b'<rdf:li xml:lang="de">See</rdf:li>' in xmp.to_bytes()


def test_a_tag_that_a_person_removed_does_not_come_back():
    xmp = XmpPacket()
    xmp.set_tags(["dog", "cat"])
    removed = XmpPacket(xmp.to_bytes().replace(b"<rdf:li>cat</rdf:li>", b"", 1))
    assert removed.tags == ("dog",)
    for tags in (["cat", "dog", "lake"], ["cat", "lake"]):
        removed.set_tags(tags)
        removed = XmpPacket(removed.to_bytes())
        assert removed.tags == tuple(tags[1:])


def test_a_list_of_digikam_gets_the_tags_too():
    elements = (
        "<d:TagsList xmlns:d='http://www.digikam.org/ns/1.0/'><rdf:Seq>"
        "<rdf:li>Animals/Dog</rdf:li><rdf:li>Trip</rdf:li></rdf:Seq></d:TagsList>"
    )
    xmp = XmpPacket(packet(elements))
    for _ in range(2):
        xmp.set_tags(["dog", "lake"])
        items = etree.fromstring(xmp.to_bytes()).iterfind(
            ".//{http://www.digikam.org/ns/1.0/}TagsList//{*}li"
        )
        assert [item.text for item in items] == ["Animals/Dog", "Trip", "lake"]
        assert xmp.tags == ("dog", "lake")


@given(st.lists(st.text(max_size=9), max_size=4), st.lists(st.text(max_size=9)))
def test_any_tags_can_be_written_and_never_double_a_keyword(first, second):
    xmp = XmpPacket(packet())
    for tags in (first, second):
        xmp.set_tags(tags)
        xmp = XmpPacket(xmp.to_bytes())
        assert xmp.keywords[0] == "holiday"
        assert len(xmp.tags) <= len(tags)

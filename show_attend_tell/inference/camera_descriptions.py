"""Recognise descriptions that a camera or a program wrote, and no person.

Cameras fill in the same description for every photo, and programs copy it into XMP,
IPTC and sidecars. The list joins the ones that photo programs ignore (PhotoPrism,
``internal/meta/sanitize.go``; iNaturalist, ``BRANDED_DESCRIPTIONS``; KPhotoAlbum,
``commentsToStrip``) and comments of encoders. Most unknown ones have a shape that no
sentence has: a path, a name of a file, or a single token such as ``oznor``.
"""

import re

# Whole descriptions, in lower case.
_DEFAULTS = frozenset(
    """\
applemark
binary comment
bildschirmfoto
camera
capture d'écran
capture d’écran
captura de ecrã
captura de pantalla
captura de tela
charset=ascii
created by imlib
default
dvc 10.1 hdmi
exif_jpeg_picture
exif_jpeg_picture_t
hellomoto
iclarified
image
istantanea schermo
my beautiful picture
photo
picasa
picture
samsung
samsung camera pictures
scanner
schermafbeelding
screenshot
single
smart
sony dsc
untitled
x-default
zrzut ekranu
снимок экрана
截屏
截图
屏幕快照
스크린샷
スクリーンショット
burst
bsh
btf
btfhdr
btfmdn
btr
cof
_cuva
dav
edf
fbt
fbthdr
frem
frontbhdp
fshbty
hdr
hdrpl
mde
mde_soft
mon
nor
oznor
oznorwo
ptr
qrf
rbt
rhdr
rpt
sdr_hdrb""".splitlines()
)

# "OLYMPUS DIGITAL CAMERA", "KODAK Digital Still Camera", "MOULTRIE DIGITAL GAME
# CAMERA"; in lower case a person may have written it.
_CAMERA = re.compile(
    r"(?:[\w&.,-]+ ){0,3}(?:DIGITAL|Digital) (?:\w+ )?(?:CAMERA|Camera)"
)
_BY_PROGRAM = re.compile(
    r"creator: gd-jpeg.*"
    r"|(?:created|edited|generated) (?:with|in|using) (?-i:[A-Z]).*"
    # GIMP translates its default comment.
    r"|(?:erstellt mit|créé avec|creado con|creato con|criado com o|gemaakt met) gimp"
    r"|(?:optimi[sz]ed|compressed|processed) (?:by|with|using) .*"
    r"|file (?:created|written) by .*"
    r"|gif made with .*"
    r"|intel\(r\) jpeg library.*"
    r"|lavc[\d.]+"
    r"|lead technologies.*"
    r"|u-lead systems.*"
    r"|handmade software.*"
    r"|jpeg encoder .*"
    r"|software: .*"
    r"|\(?(?:string with )?binary data.*",
    re.IGNORECASE,
)
# "<KENOX S1050  / Samsung S1050>", and records such as {"mirror":false}.
_BRACKETS = re.compile(r"<.*>|\{.*\}|\[.*\]", re.DOTALL)
_PATH = re.compile(
    r"(?:[A-Za-z]:[\\/]|\\\\|/|file:)\S.*"  # it begins at a root
    r"|\S+[\\/]\S+"  # DCIM\100MEDIA\DJI_0001.JPG
    r"|.*\\.*\.\w{2,4}"
)
_FILE_NAME = re.compile(r"[!-~]*[\d_][!-~]*")  # ASCII, with a digit or underscore
_TOKEN = re.compile("[!-~]+")
_MOST_CONTROLS = 0.1  # share of control characters; more of them are binary data


def is_default(text: str, in_camera_field: bool = False) -> bool:
    """Return whether no person wrote a description, or it is empty.

    Args:
        text: the description.
        in_camera_field: whether it is in a field that cameras fill in, such as EXIF
            ImageDescription. A single ASCII word there is a camera's; elsewhere it may
            be the name that a person gave to the photo.
    """
    controls = sum(ord(letter) < 32 and not letter.isspace() for letter in text)
    if controls > _MOST_CONTROLS * len(text):
        return True
    words = " ".join(text.replace("\0", " ").split())
    if not any(letter.isalpha() for letter in words):  # empty, a date, a number
        return True
    if words.lower() in _DEFAULTS or in_camera_field and _TOKEN.fullmatch(words):
        return True
    shapes = (_CAMERA, _BY_PROGRAM, _BRACKETS, _PATH, _FILE_NAME)
    return any(shape.fullmatch(words) for shape in shapes)

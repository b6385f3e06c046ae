"""Names of folders that systems and programs make, and of folders of a person."""

SYSTEM = [
    *("@eaDir", "#recycle", "#snapshot", "@Recycle", "@Recently-Snapshot", ".@__thumb"),
    *("$RECYCLE.BIN", "$Recycle.Bin", "RECYCLER", "System Volume Information"),
    *("__MACOSX", ".Trash-1000", "lost+found", "Network Trash Folder", "FOUND.000"),
    *("Catalog Previews.lrdata", "Photos Library.photoslibrary", ".thumbnails"),
]
OWN = ["2019", "#1 Rex", "@home", "$1 sale", "recycling", "Snapshots", "found", "trash"]

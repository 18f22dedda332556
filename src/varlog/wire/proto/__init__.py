"""Generated from proto/varlog.proto by `./run proto`; never edited by hand."""

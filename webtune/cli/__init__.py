"""One module a command of `webtune`: each takes parsed options, prints, gives an exit status."""

"""Where picks are remembered, behind one protocol."""

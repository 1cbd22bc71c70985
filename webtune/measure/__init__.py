"""From rounds to readings: candidates are calibrated, checked and timed on a device."""

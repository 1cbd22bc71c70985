"""From rounds to readings: candidates are checked, calibrated and timed on a device."""

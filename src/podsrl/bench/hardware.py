"""One line that says what a figure was measured on."""

from podsrl.lib.machine import hardware_line as hardware_line

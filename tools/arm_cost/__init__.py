"""Instructions of a network's steps on the processors of boards, counted under qemu."""

"""Forward passes in float32 on the host; what runs on a device beside it needs no more than its layers and memory."""

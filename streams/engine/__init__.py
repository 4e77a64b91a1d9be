"""The frame: chunks from Kafka, a table per partition, a packed log. Knows nothing of usage."""

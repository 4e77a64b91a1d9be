"""The service: agents on Faust, an engine on librdkafka, a pure core, adapters at the edge."""

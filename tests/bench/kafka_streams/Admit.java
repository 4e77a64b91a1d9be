import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.DateTimeException;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * The same job as a topology of Kafka Streams: one processor, a store of ids and a store of hourly
 * totals, both on RocksDB with changelogs, three sinks.
 *
 * <p>Arguments: bootstrap servers, source topic, common beginning of the three output topics,
 * application id, state directory, milliseconds between two commits, then METRIC=SCALE for each
 * meter. It runs until it is told to end.
 */
public final class Admit {
    private static final Duration SKEW_MAX = Duration.ofHours(24);
    private static final byte[] SEEN = {1};
    private static final String IDS = "ids";
    private static final String TOTALS = "totals";

    /** The fields that are used, and no others. */
    private static final class Usage {
        private static final JsonFactory JSON = new JsonFactory();

        private Bytes id;
        private String tenant;
        private String metric;
        private long units;
        private Instant occurred;
        private Instant received;

        /** What a record says; null where it cannot be read. */
        static Usage of(byte[] value, Map<String, Integer> scales) {
            String quantity = null;
            Usage usage = new Usage();
            try (JsonParser parser = JSON.createParser(value)) {
                if (parser.nextToken() != JsonToken.START_OBJECT) {
                    return null;
                }
                while (parser.nextToken() == JsonToken.FIELD_NAME) {
                    String name = parser.currentName();
                    parser.nextToken();
                    switch (name) {
                        case "event_id" -> usage.id = bytes(UUID.fromString(parser.getText()));
                        case "tenant_id" -> usage.tenant = parser.getText();
                        case "metric" -> usage.metric = parser.getText();
                        case "quantity" -> quantity = parser.getText();
                        case "occurred_at" -> usage.occurred = Instant.parse(parser.getText());
                        case "received_at" -> usage.received = Instant.parse(parser.getText());
                        default -> parser.skipChildren();
                    }
                }
                int scale = scales.get(usage.metric);
                usage.units = new BigDecimal(quantity).setScale(scale).unscaledValue().longValueExact();
                return usage;
            } catch (IOException | DateTimeException | IllegalArgumentException
                    | ArithmeticException | NullPointerException unreadable) {
                return null;
            }
        }

        Bytes series(String hour) {
            return Bytes.wrap((tenant + ' ' + metric + ' ' + hour).getBytes(StandardCharsets.UTF_8));
        }

        private static Bytes bytes(UUID id) {
            return Bytes.wrap(
                ByteBuffer.allocate(16)
                    .putLong(id.getMostSignificantBits())
                    .putLong(id.getLeastSignificantBits())
                    .array());
        }
    }

    /** One record in, at most one out. */
    private static final class Judge implements Processor<byte[], byte[], byte[], byte[]> {
        private final Map<String, Integer> scales;
        private ProcessorContext<byte[], byte[]> context;
        private KeyValueStore<Bytes, byte[]> ids;
        private KeyValueStore<Bytes, byte[]> totals;

        Judge(Map<String, Integer> scales) {
            this.scales = scales;
        }

        @Override
        public void init(ProcessorContext<byte[], byte[]> context) {
            this.context = context;
            ids = context.getStateStore(IDS);
            totals = context.getStateStore(TOTALS);
        }

        @Override
        public void process(Record<byte[], byte[]> record) {
            Usage usage = Usage.of(record.value(), scales);
            if (usage == null) {
                forward(record, "dead", record.value());
                return;
            }
            if (ids.putIfAbsent(usage.id, SEEN) != null) {
                return;
            }
            if (Duration.between(usage.occurred, usage.received).compareTo(SKEW_MAX) > 0) {
                forward(record, "review", wrapped("{\"reason\":\"late\",\"event\":", record.value()));
                return;
            }
            // 2026-11-01T05
            String hour = usage.occurred.truncatedTo(ChronoUnit.HOURS).toString().substring(0, 13);
            Bytes series = usage.series(hour);
            byte[] before = totals.get(series);
            ByteBuffer known = before == null ? null : ByteBuffer.wrap(before);
            long count = known == null ? 0 : known.getLong();
            long total = known == null ? 0 : known.getLong();
            totals.put(
                series,
                ByteBuffer.allocate(16).putLong(count + 1).putLong(total + usage.units).array());
            forward(record, "accepted", wrapped("{\"window\":\"" + hour + "\",\"event\":", record.value()));
        }

        private void forward(Record<byte[], byte[]> record, String sink, byte[] value) {
            context.forward(new Record<>(record.key(), value, record.timestamp()), sink);
        }

        private static byte[] wrapped(String head, byte[] event) {
            byte[] start = head.getBytes(StandardCharsets.US_ASCII);
            return ByteBuffer.allocate(start.length + event.length + 1)
                .put(start).put(event).put((byte) '}').array();
        }
    }

    private static StoreBuilder<KeyValueStore<Bytes, byte[]>> store(String name) {
        return Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore(name), Serdes.Bytes(), Serdes.ByteArray());
    }

    public static void main(String[] arguments) {
        Map<String, Integer> scales = new HashMap<>();
        for (int place = 6; place < arguments.length; place++) {
            String[] pair = arguments[place].split("=");
            scales.put(pair[0], Integer.parseInt(pair[1]));
        }
        var bytes = Serdes.ByteArray();
        Topology topology = new Topology();
        topology.addSource("source", bytes.deserializer(), bytes.deserializer(), arguments[1]);
        topology.addProcessor("judge", () -> new Judge(scales), "source");
        // A total changes often between two commits: the cache writes it once.
        topology.addStateStore(store(IDS), "judge");
        topology.addStateStore(store(TOTALS).withCachingEnabled(), "judge");
        for (String sink : new String[] {"accepted", "review", "dead"}) {
            String topic = arguments[2] + "." + sink;
            topology.addSink(sink, topic, bytes.serializer(), bytes.serializer(), "judge");
        }

        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[3]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.AT_LEAST_ONCE);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, arguments[5]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        KafkaStreams streams = new KafkaStreams(topology, settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return StreamThreadExceptionResponse.SHUTDOWN_APPLICATION;
        });
        Runtime.getRuntime().addShutdownHook(
            new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
    }
}

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.OffsetDateTime;

/** An order service with JDBC: each order and its usage are one transaction. */
public final class Orders {
    private static final String ORDER =
        "INSERT INTO orders VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING";
    private static final String USAGE =
        "SELECT status, event_id, received_at"
            + " FROM metering.record_usage(?, 'orders', ?, ?, on_conflict => 'raise')";

    private record Usage(String status, String eventId, OffsetDateTime receivedAt) {}

    private static Usage place(Connection connection, String orderId, String tenant, int items, boolean fail)
            throws SQLException {
        try (var order = connection.prepareStatement(ORDER); var usage = connection.prepareStatement(USAGE)) {
            bind(order, orderId, tenant, items).executeUpdate();
            // metering begins
            try (ResultSet row = bind(usage, tenant, items, orderId).executeQuery()) {
                row.next();
                var recorded = new Usage(row.getString(1), row.getString(2), row.getObject(3, OffsetDateTime.class));
                // metering ends
                if (fail) {
                    throw new IllegalStateException("the warehouse is on fire");
                }
                connection.commit();
                return recorded;
            }
        } catch (SQLException | RuntimeException error) {
            connection.rollback();
            throw error;
        }
    }

    private static java.sql.PreparedStatement bind(java.sql.PreparedStatement statement, Object... values)
            throws SQLException {
        for (int place = 0; place < values.length; place++) {
            statement.setObject(place + 1, values[place]);
        }
        return statement;
    }

    /** Places an order for each line: id, tenant, items, and `fail` for one that does not work. */
    public static void main(String[] arguments) throws Exception {
        try (var connection = DriverManager.getConnection(System.getenv("JDBC_URL"));
                var lines = new BufferedReader(new InputStreamReader(System.in))) {
            connection.setAutoCommit(false);
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ");
                try {
                    var usage = place(connection, words[0], words[1], Integer.parseInt(words[2]), words.length > 3);
                    System.out.println(usage.status() + " " + usage.eventId() + " " + usage.receivedAt());
                } catch (SQLException | RuntimeException error) {
                    System.out.println("rolled back: " + error.getMessage().lines().findFirst().orElse(""));
                }
            }
        }
    }
}

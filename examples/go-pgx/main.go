// An order service with pgx: each order and its usage are one transaction.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const usage = `SELECT status, event_id::text, received_at
	FROM metering.record_usage($1, 'orders', $2::int, $3, on_conflict => 'raise')`

type recorded struct {
	status, eventID string
	receivedAt      time.Time
}

func place(ctx context.Context, conn *pgx.Conn, orderID, tenant, items string, fail bool) (r recorded, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO orders VALUES ($1, $2, $3::int) ON CONFLICT (id) DO NOTHING",
			orderID, tenant, items)
		if err != nil {
			return err
		}
		// metering begins
		err = tx.QueryRow(ctx, usage, tenant, items, orderID).Scan(&r.status, &r.eventID, &r.receivedAt)
		if err != nil {
			return err
		} // metering ends
		if fail {
			return errors.New("the warehouse is on fire")
		}
		return nil
	})
	return r, err
}

// Places an order for each line: id, tenant, items, and `fail` for one that does not work.
func main() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		r, err := place(ctx, conn, words[0], words[1], words[2], len(words) > 3)
		if err != nil {
			fmt.Println("rolled back:", err)
			continue
		}
		fmt.Println(r.status, r.eventID, r.receivedAt.Format(time.RFC3339Nano))
	}
}

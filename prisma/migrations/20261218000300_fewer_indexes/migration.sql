-- Each index of a row that a payment writes costs 130 bytes of log for each of its versions, or more. Three indexes did little.

-- One index for the list of an agent's payments and for its windows: both read by agent and time. `counted` is in it, so that a
-- window still reads nothing but the index. It is true of all rows but refusals, receipts and withdrawals.
DROP INDEX payments_counted_idx;
CREATE INDEX payments_counted_idx ON payments (agent_id, created_at, id) INCLUDE (amount, counterparty, counted);
DROP INDEX payments_agent_id_created_at_idx;

-- It served only sums of the last 24 hours. The rows of that time are next to each other, and a BRIN index finds them.
DROP INDEX settlements_recent_idx;
CREATE INDEX settlements_recent_idx ON settlements USING brin (created_at) WITH (autosummarize = on);

-- Settled payments are nearly all notifications. Among them notifications_owner_idx finds them at once.
DROP INDEX notifications_type_idx;
CREATE INDEX notifications_type_idx ON notifications (owner_id, type, created_at DESC, id DESC) WHERE type <> 'payment.settled';

-- rehearsed_block: the newest block when a payment's rehearsal was asked for, which went well. As long as that is the newest,
-- the same question is answered the same, and its batch need not ask it again. Null where it was not rehearsed, or was given
-- back to the queue since.
ALTER TABLE settlements ADD COLUMN rehearsed_block BIGINT;

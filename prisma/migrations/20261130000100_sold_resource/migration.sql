-- What a settled payment bought, as the payment names it: shown to the merchant, and not verified. Null where the payment
-- does not name it, and in rows of the build before.
ALTER TABLE settlements ADD COLUMN resource_url TEXT, ADD COLUMN resource_method TEXT;

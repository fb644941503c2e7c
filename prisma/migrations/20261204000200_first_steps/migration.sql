-- When an owner hid the first steps of the app. An earlier build leaves it null.
ALTER TABLE owners ADD COLUMN first_steps_hidden_at TIMESTAMPTZ(6);

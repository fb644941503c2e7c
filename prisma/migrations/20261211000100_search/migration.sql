-- Search of the marketplace. purser_listing_document writes document, near_words and text_key; purser_listing_figures the rest.
ALTER TABLE listings
  -- The seller's own, from the 402.
  ADD COLUMN tags TEXT[] NOT NULL DEFAULT '{}',
  -- Null: a row from before this migration; the marketplace's job writes it.
  ADD COLUMN document TSVECTOR,
  ADD COLUMN near_words TEXT[] NOT NULL DEFAULT '{}',
  -- The same for listings with the same description.
  ADD COLUMN text_key TEXT,
  -- Of the last 30 days, to this payee at this host; at most 10 settlements of one payer count.
  ADD COLUMN settlements INTEGER NOT NULL DEFAULT 0,
  ADD COLUMN payers INTEGER NOT NULL DEFAULT 0,
  -- A listing of another seller with the same texts, which has more payers.
  ADD COLUMN similar_to TEXT,
  ADD COLUMN figures_at TIMESTAMPTZ(6) NOT NULL DEFAULT '-infinity';
CREATE INDEX listings_document_idx ON listings USING gin (document);
CREATE INDEX listings_near_words_idx ON listings USING gin (near_words);
CREATE INDEX listings_text_key_idx ON listings (text_key);
CREATE INDEX listings_figures_at_idx ON listings (figures_at);

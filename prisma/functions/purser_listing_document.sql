-- What search reads of a listing: the name (A), category, tags and parameters (B), the description (C), host and path (D). Tags,
-- parameters and words of the name beyond the first few do not count.
CREATE FUNCTION purser_listing_document() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  v_input JSONB := NEW.extensions #> '{bazaar,info,input}';
  v_parameters TEXT;
  v_name TEXT := array_to_string((string_to_array(purser_search_words(NEW.name), ' '))[1:8], ' ');
  v_labels TEXT;
  v_description TEXT := btrim(purser_search_words(NEW.description));
  v_main TSVECTOR;
BEGIN
  SELECT string_agg(DISTINCT left(p.key, 40) || ' ' || regexp_replace(left(p.key, 40), '([a-z])([A-Z])', '\1 \2', 'g'), ' ')
    INTO v_parameters
    FROM (SELECT k.key
            FROM unnest(ARRAY['queryParams', 'pathParams', 'body']) AS part (name),
                 LATERAL jsonb_object_keys(CASE WHEN jsonb_typeof(v_input -> part.name) = 'object' THEN v_input -> part.name
                                                ELSE '{}' END) AS k (key)
           LIMIT 10) p;
  v_labels := purser_search_words(concat_ws(' ', NEW.category, array_to_string(NEW.tags[1:5], ' '), v_parameters));
  v_main := setweight(to_tsvector('english', v_name) || to_tsvector('simple', v_name), 'A')
         || setweight(to_tsvector('english', v_labels) || to_tsvector('simple', v_labels), 'B');
  NEW.document := v_main
    || setweight(to_tsvector('english', v_description) || to_tsvector('simple', v_description), 'C')
    || setweight(to_tsvector('simple', purser_search_words(regexp_replace(left(NEW.url, 300), '^https?://', ''))), 'D');
  SELECT coalesce(array_agg(DISTINCT n.form), '{}') INTO NEW.near_words
    FROM unnest(tsvector_to_array(v_main)) AS w (word), LATERAL unnest(purser_near_words(w.word)) AS n (form);
  -- Sellers may share a short description by chance.
  NEW.text_key := CASE WHEN cardinality(string_to_array(v_description, ' ')) >= 5 THEN md5(v_description) END;
  RETURN NEW;
END;
$$;
CREATE TRIGGER listings_document BEFORE INSERT OR UPDATE OF name, description, category, tags, url, extensions ON listings
  FOR EACH ROW EXECUTE FUNCTION purser_listing_document();

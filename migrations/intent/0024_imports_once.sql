-- One transaction is one payment, so one imported request. What was imported before keeps its rows: of several that name the
-- same transaction only the first carries the chain that the constraint looks at. The previous binary does not name the chain;
-- the trigger does it in its place.
ALTER TABLE imports ADD COLUMN chain text;

UPDATE imports AS import SET chain = request.chain
FROM withdrawal_requests AS request
WHERE request.id = import.request_id
  AND NOT EXISTS (
      SELECT FROM imports AS twin
      JOIN withdrawal_requests AS other ON other.id = twin.request_id
      WHERE twin.tx_hash = import.tx_hash AND other.chain = request.chain
        AND (other.updated_at, other.id) < (request.updated_at, request.id));

ALTER TABLE imports ADD CONSTRAINT imports_transaction_once UNIQUE (chain, tx_hash);

CREATE FUNCTION imports_name_chain() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT request.chain INTO STRICT NEW.chain FROM withdrawal_requests AS request WHERE request.id = NEW.request_id;
    RETURN NEW;
END
$$;

CREATE TRIGGER imports_name_chain BEFORE INSERT ON imports
    FOR EACH ROW EXECUTE FUNCTION imports_name_chain();

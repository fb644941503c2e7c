// Searches all output of a service for secrets: responses, logs, metrics, and every row of its database.
import type { Pool } from "pg";

interface Leak {
  secret: string;
  /** Where it was found. */
  place: string;
}

export class SecretWatch {
  readonly #secrets: { name: string; forms: string[] }[] = [];
  readonly #seen: { place: string; text: string }[] = [];

  /** Text secrets are searched plain and encoded, binary ones as hex and base64. */
  addSecret(name: string, secret: string | Uint8Array): void {
    const bytes = Buffer.from(secret);
    const encoded = [bytes.toString("hex"), bytes.toString("base64"), bytes.toString("base64url")];
    const plain = typeof secret === "string" ? [secret, encodeURIComponent(secret)] : [];
    // Hex may be in either case, and base64 padding may be missing.
    const forms = [...plain, ...encoded.map((text) => text.replace(/=+$/, ""))];
    this.#secrets.push({ name, forms: [...new Set(forms.map((form) => form.toLowerCase()))] });
  }

  see(place: string, text: string): void {
    this.#seen.push({ place, text: text.toLowerCase() });
  }

  /** Every row of every table with bytes as hex, like a database dump. */
  async seeDatabase(pool: Pool): Promise<number> {
    const { rows: tables } = await pool.query<{ name: string }>(
      "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')",
    );
    let count = 0;
    for (const { name } of tables) {
      const { rows } = await pool.query<{ row: string }>(`SELECT r::text AS row FROM ${name} r`);
      for (const { row } of rows) this.see(`table ${name}`, row);
      count += rows.length;
    }
    return count;
  }

  get places(): string[] {
    return [...new Set(this.#seen.map(({ place }) => place))];
  }

  leaks(): Leak[] {
    return this.#seen.flatMap(({ place, text }) =>
      this.#secrets
        .filter(({ forms }) => forms.some((form) => text.includes(form)))
        .map(({ name }) => ({ secret: name, place })),
    );
  }
}

import type { ReactNode } from "react";
import { Link } from "react-router";
import type { ApiError } from "../lib/api.ts";
import { plural } from "../lib/plural.ts";
import { Note } from "./Layout.tsx";

/** No failure and no success: the request of a team waits for other members. */
export default function WaitingNotice({ error }: { error: ApiError }): ReactNode {
  const { id, needed, collected } = error.problem;
  const missing = Number(needed) - (Array.isArray(collected) ? collected.length : 0);
  return (
    <Note color="yellow">
      <p role="status">
        <strong>
          {missing > 0
            ? `Waits for ${plural(missing, "more signature")}.`
            : "Waits for signatures."}
        </strong>{" "}
        {error.message} <Link to={`/waiting?order=${String(id)}`}>Show the order</Link>
      </p>
    </Note>
  );
}

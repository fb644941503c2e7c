/** Owners that move to another cell: from the beginning of the move none of their credentials works here. */
import { otherCell } from "../http/errors.ts";

export interface Whereabouts {
  movedTo: string | null;
  movedUrl: string | null;
}

export function assertHere({ movedTo, movedUrl }: Whereabouts): void {
  if (movedTo !== null && movedUrl !== null) throw otherCell({ cell: movedTo, url: movedUrl });
}

import { refuseField } from "../../core/refuse-field.ts";
import { readLabel } from "../agents/rules.ts";

/** A passkey's name, which is in the orders that list it. */
export function readName(text: string): string {
  const name = readLabel(text, "body.name");
  if (name === "") throw refuseField("validation_failed", "body.name", "is empty");
  return name;
}

/** The answer of the validator as text for people. */
import type { Validation } from "./types.ts";

const MARKS = { error: "ERROR", warning: "warning", note: "note" } as const;
const OUTCOMES = {
  pays: "pays",
  refuses: "refuses",
  fails: "signs in vain",
  unknown: "unknown",
} as const;

export function validationText(checked: Validation): string {
  const { url, method, ok, status, findings, offers, clients, listed } = checked;
  const answer = status === null ? "no answer" : `answered ${status}`;
  return [
    `${method} ${visible(url)}: ${ok ? "payable" : "NOT PAYABLE"} (${answer})`,
    ...findings.map(findingText),
    "",
    ...offers.map(offerText),
    "",
    ...clients.map(({ name, outcome, why }) => `${name}: ${OUTCOMES[outcome]}. ${why}`),
    "",
    `Marketplace: ${listed.why}`,
  ]
    .filter((line, index, lines) => line !== "" || lines[index - 1] !== "")
    .join("\n");
}

function findingText({
  code,
  severity,
  message,
  where,
  fix,
  thirdParty,
}: Validation["findings"][number]): string {
  const found = thirdParty ? `\n    found: ${JSON.stringify(visible(thirdParty.found))}` : "";
  const change = fix === null ? "" : `\n    change: ${visible(fix)}`;
  return `\n${MARKS[severity]} ${code} at ${where}\n    ${message}${found}${change}`;
}

const offerText = ({
  offer,
  price,
  maximum,
  networkName,
  payTo,
  simulation,
}: Validation["offers"][number]): string => {
  const most = maximum ? "up to " : "";
  const what = price === null ? "a price that is not in USDC" : `${most}${price} USDC`;
  const place = networkName ?? "an unknown network";
  return `Offer ${offer}: ${what} on ${place} to ${payTo ?? "an unreadable payee"}. ${simulation.why}`;
};

/** Whatever a service sends, it cannot move the cursor of a terminal. */
const visible = (text: string): string => text.replaceAll(/[\p{Cc}\p{Cf}]/gu, "?");

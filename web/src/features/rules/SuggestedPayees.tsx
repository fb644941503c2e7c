import { Checkbox, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { Money } from "../../components/Money.tsx";
import { isSamePayee } from "../../lib/orders/terms.ts";
import { plural } from "../../lib/plural.ts";
import type { AllowlistDraft } from "./rules.ts";
import styles from "./SuggestedPayees.module.css";
import { entryOf, type SuggestedPayee } from "./templates.ts";

const MOST_NAMES = 3;

interface SuggestedPayeesProps {
  suggested: readonly SuggestedPayee[];
  value: AllowlistDraft[];
  onChange: (value: AllowlistDraft[]) => void;
}

/** Sellers of the marketplace. A tick adds the seller's address, for its site and up to its price. */
export function SuggestedPayees({ suggested, value, onChange }: SuggestedPayeesProps): ReactNode {
  if (suggested.length === 0) return null;
  return (
    <div role="group" aria-label="Suggested payees" className={styles.root}>
      <Text c="dimmed" size="sm">
        Suggested from the marketplace: sellers that respond and were paid through this service.
        Purser does not check what they sell; quoted words are theirs.
      </Text>
      <ul className={styles.list}>
        {suggested.map((payee) => {
          const isListed = value.some((entry) => isSamePayee(entry, payee));
          const key = `${payee.address} ${payee.site}`;
          return (
            <li key={key}>
              <Checkbox
                checked={isListed}
                label={new URL(payee.site).host}
                aria-describedby={key}
                onChange={() => {
                  onChange(
                    isListed
                      ? value.filter((entry) => !isSamePayee(entry, payee))
                      : [...value, entryOf(payee)],
                  );
                }}
              />
              <About id={key} payee={payee} />
            </li>
          );
        })}
      </ul>
    </div>
  );
}

function About({ id, payee }: { id: string; payee: SuggestedPayee }): ReactNode {
  const { names, lowest, highest, isByUse, address } = payee;
  const more = names.length - MOST_NAMES;
  return (
    <p id={id} className={styles.about}>
      <q>{names.slice(0, MOST_NAMES).join(", ")}</q>
      {more > 0 && ` and ${more} more`}.{" "}
      {isByUse
        ? "Up to "
        : lowest !== highest && (
            <>
              <Money amount={lowest} /> to{" "}
            </>
          )}
      <Money amount={highest} /> a call. {proofOf(payee)} A tick allows{" "}
      <Address value={address} copy={false} /> at this site, up to <Money amount={highest} /> per
      payment.
    </p>
  );
}

function proofOf({ isOwn, uses }: SuggestedPayee): string {
  if (isOwn) return "Sold by this service.";
  return uses === 0
    ? "Paid through this service."
    : `Paid by agents here ${plural(uses, "time", "times")}.`;
}

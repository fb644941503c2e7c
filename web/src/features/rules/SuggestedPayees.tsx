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
        Suggested: sellers of the marketplace that respond and were paid before. Purser does not
        check what they sell. Names are the sellers&rsquo; own.
      </Text>
      <ul className={styles.list}>
        {suggested.map((payee) => {
          const isListed = value.some((entry) => isSamePayee(entry, payee));
          return (
            <li key={`${payee.address} ${payee.site}`}>
              <Checkbox
                checked={isListed}
                label={new URL(payee.site).host}
                description={<About payee={payee} />}
                onChange={() => {
                  onChange(
                    isListed
                      ? value.filter((entry) => !isSamePayee(entry, payee))
                      : [...value, entryOf(payee)],
                  );
                }}
              />
            </li>
          );
        })}
      </ul>
    </div>
  );
}

function About({ payee }: { payee: SuggestedPayee }): ReactNode {
  const { names, lowest, highest, uses, address } = payee;
  const more = names.length - MOST_NAMES;
  return (
    <span className={styles.about}>
      <q>{names.slice(0, MOST_NAMES).join(", ")}</q>
      {more > 0 && ` and ${more} more`}. <Money amount={lowest} />
      {lowest !== highest && (
        <>
          {" "}
          to <Money amount={highest} />
        </>
      )}{" "}
      a call, which becomes its limit per payment. {plural(uses, "paid fetch", "paid fetches")}{" "}
      here. <Address value={address} copy={false} />
    </span>
  );
}

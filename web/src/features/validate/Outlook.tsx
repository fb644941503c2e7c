import { Badge, Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { Address } from "../../components/Address.tsx";
import { KeyValues, Note, Section } from "../../components/Layout.tsx";
import { Price } from "../../components/Price.tsx";
import { plural } from "../../lib/plural.ts";
import type { Validation } from "../../lib/wire.ts";
import styles from "./Validate.module.css";

const OUTCOMES = {
  pays: { label: "Pays", color: "green" },
  refuses: { label: "Refuses", color: "gray" },
  fails: { label: "Signs in vain", color: "red" },
  unknown: { label: "Unknown", color: "gray" },
} as const;

const WELL_KNOWN = {
  found: "is there",
  broken: "is there and has faults",
  missing: "is not there",
} as const;

/** Everything about the answer that is no finding. */
export function Outlook({ checked }: { checked: Validation }): ReactNode {
  const { offers, clients, listed, wellKnown } = checked;
  return (
    <>
      <Section flush title="Clients" hint="What each kind of client would do with this answer.">
        <ul>
          {clients.map(({ client, name, outcome, why }) => (
            <li key={client} className={styles.row}>
              <div className={styles.head}>
                <strong>{name}</strong>
                <Badge color={OUTCOMES[outcome].color} mod="plain">
                  {OUTCOMES[outcome].label}
                </Badge>
              </div>
              <p>{why}</p>
            </li>
          ))}
        </ul>
      </Section>
      {offers.length > 0 && (
        <Section title="Offers" hint="A payment was simulated where possible. Nothing was paid.">
          <Stack>
            {offers.map((offer) => (
              <Offer key={offer.offer} offer={offer} />
            ))}
          </Stack>
        </Section>
      )}
      <Section title="Marketplace">
        <p>
          {listed.why}{" "}
          {listed.listingId !== null && (
            <Link to={`/marketplace/${listed.listingId}`}>Open the listing</Link>
          )}
        </p>
        {wellKnown && (
          <p>
            <code>/.well-known/x402</code> {WELL_KNOWN[wellKnown.outcome]}
            {wellKnown.outcome !== "missing" &&
              `, with ${plural(wellKnown.resources, "URL")} of this host`}
            .
          </p>
        )}
      </Section>
    </>
  );
}

const Offer = ({ offer }: { offer: Validation["offers"][number] }): ReactNode => (
  <KeyValues
    rows={[
      ["Offer", `${offer.offer} (${offer.where})`],
      ["Network", offer.networkName ?? (offer.thirdParty.network || "not readable")],
      [
        "Price",
        offer.price === null ? offer.thirdParty.amount || "not readable" : <Price of={offer} />,
      ],
      ["Payee", offer.payTo === null ? "not readable" : <Address value={offer.payTo} />],
      ["Simulated payment", offer.simulation.why],
    ]}
  />
);

export function Verdict({ checked }: { checked: Validation }): ReactNode {
  const { ok, findings, status } = checked;
  const hasErrors = findings.some(({ severity }) => severity === "error");
  return (
    <Note color={ok ? "green" : "yellow"}>
      <p role="status">
        {ok
          ? hasErrors
            ? "One offer can be paid, and others cannot."
            : findings.length === 0
              ? "It can be paid, and nothing was found."
              : "It can be paid."
          : status === null
            ? "Nobody can pay this: there was no answer."
            : `Nobody can pay this. It answered with status ${status}.`}
      </p>
    </Note>
  );
}

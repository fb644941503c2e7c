import { TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Address } from "../../components/Address.tsx";
import { Button } from "../../components/Button.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Note, Row, Stack } from "../../components/Layout.tsx";
import { api } from "../../lib/api.ts";
import { isSameAddress } from "../../lib/address.ts";
import { formatUsdc } from "../../lib/money.ts";
import type { SiteLookup } from "../../lib/wire.ts";
import type { AllowlistDraft } from "./rules.ts";
import styles from "./Site.module.css";

interface AllowSiteProps {
  /** The agent whose allowlist it is; the site's terms are requested as this agent would. */
  agentId: string;
  onPick: (entry: AllowlistDraft) => void;
}

/**
 * Adds a payee by website: the user enters a URL, sees the payee that the site requests payment to, and adds
 * that address for that site.
 */
export function AllowSite({ agentId, onPick }: AllowSiteProps): ReactNode {
  const [isOpen, setOpen] = useState(false);
  const close = (): void => {
    setOpen(false);
  };
  return (
    <>
      <Button
        size="small"
        onClick={() => {
          setOpen(true);
        }}
      >
        Allow a website
      </Button>
      <Dialog opened={isOpen} onClose={close} title="Allow a website" size="lg">
        {isOpen && (
          <AskSite
            agentId={agentId}
            onPick={(entry) => {
              onPick(entry);
              close();
            }}
          />
        )}
      </Dialog>
    </>
  );
}

function AskSite({ agentId, onPick }: AllowSiteProps): ReactNode {
  const [url, setUrl] = useState("");
  const probe = useMutation({
    mutationFn: () => api.post<SiteLookup>(`/api/agents/${agentId}/allowlist/lookup`, { url }),
  });
  const onSubmit = (event: React.FormEvent): void => {
    event.preventDefault();
    // This dialog is inside the form of the rules.
    event.stopPropagation();
    if (url.trim() !== "" && !probe.isPending) probe.mutate();
  };
  return (
    <Stack gap={4}>
      <form className={styles.form} onSubmit={onSubmit}>
        <TextInput
          label="Address of a paid page"
          description="Purser requests the page once to read its price. Nothing is paid."
          placeholder="https://api.example.com/data"
          inputMode="url"
          spellCheck={false}
          autoComplete="off"
          data-autofocus
          value={url}
          onChange={(event) => {
            setUrl(event.currentTarget.value);
            probe.reset();
          }}
        />
        <Row end>
          <Button
            type="submit"
            variant={probe.data ? "secondary" : "primary"}
            disabled={url.trim() === ""}
            pending={probe.isPending && "Asking…"}
          >
            Read the price
          </Button>
        </Row>
      </form>
      {probe.error && (
        <ErrorNotice title="This page is not asking for payment" error={probe.error} />
      )}
      {probe.data && <Found found={probe.data} onPick={onPick} />}
    </Stack>
  );
}

function Found({
  found,
  onPick,
}: {
  found: SiteLookup;
  onPick: AllowSiteProps["onPick"];
}): ReactNode {
  const { site, readableSite, payTo, price, network, listed, thirdParty } = found;
  const isListed = listed.some((address) => isSameAddress(address, payTo));
  const { serviceName, description } = thirdParty;
  const sellerTexts = [serviceName, description].filter((words) => words !== null);
  return (
    <Stack gap={4}>
      <dl className={styles.facts} aria-label="Payment terms of the site">
        <dt>Site</dt>
        <dd className={styles.site}>
          {site}
          {readableSite !== null && <span className={styles.readable}> ({readableSite})</span>}
        </dd>
        <dt>Paid to</dt>
        <dd>
          <Address value={payTo} full />
        </dd>
        <dt>Price</dt>
        <dd>{formatUsdc(price)} USDC</dd>
        <dt>Network</dt>
        <dd>{network}</dd>
      </dl>
      {sellerTexts.length > 0 && (
        <figure className={styles.sellerTexts}>
          <figcaption>Text from the site, not checked by Purser</figcaption>
          {sellerTexts.map((words) => (
            <blockquote key={words}>{words}</blockquote>
          ))}
        </figure>
      )}
      {listed.length > 0 && !isListed && (
        <Note tone="warn">You allowed a different address at this site before.</Note>
      )}
      {isListed ? (
        <p role="status">This site is already on the list.</p>
      ) : (
        <>
          <p className={styles.hint}>
            The agent can then pay this address only through x402-fetch at exactly this site.
          </p>
          <Row end>
            <Button
              variant="primary"
              onClick={() => {
                onPick({ address: payTo, label: new URL(site).host.slice(0, 80), site });
              }}
            >
              Add to the list
            </Button>
          </Row>
        </>
      )}
    </Stack>
  );
}

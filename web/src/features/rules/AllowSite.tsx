import { Button, Group, Paper, Stack, Text, TextInput } from "@mantine/core";
import { useDisclosure, useInputState } from "@mantine/hooks";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { KeyValues, Note } from "../../components/Layout.tsx";
import { RequestForm } from "../../components/RequestForm.tsx";
import { isSameAddress } from "../../lib/address.ts";
import { api } from "../../lib/api.ts";
import { formatUsdc } from "../../lib/money.ts";
import type { SiteLookup } from "../../lib/wire.ts";
import styles from "./AllowlistEditor.module.css";
import type { AllowlistDraft } from "./rules.ts";

interface AllowSiteProps {
  /** The agent whose allowlist it is; the site's terms are requested as this agent would. None while it is created. */
  agentId?: string;
  onPick: (entry: AllowlistDraft) => void;
}

/**
 * Adds a payee by website: the user enters a URL, sees the payee that the site requests payment to, and adds
 * that address for that site.
 */
export function AllowSite({ agentId, onPick }: AllowSiteProps): ReactNode {
  const [isOpen, { open, close }] = useDisclosure();
  return (
    <>
      <Button size="xs" onClick={open}>
        Allow a website
      </Button>
      <Dialog opened={isOpen} onClose={close} title="Allow a website" size="lg">
        {isOpen && (
          <ReadSite
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

function ReadSite({ agentId, onPick }: AllowSiteProps): ReactNode {
  const [url, setUrl] = useInputState("");
  const probe = useMutation({
    mutationFn: () =>
      api.post<SiteLookup>(
        `/api/${agentId === undefined ? "" : `agents/${agentId}/`}allowlist/lookup`,
        { url: asUrl(url) },
      ),
  });
  return (
    <Stack>
      <RequestForm
        mutation={probe}
        failed="This page is not asking for payment"
        confirm="Read the price"
        pending="Reading the price…"
        align="end"
        variant={probe.data ? "default" : "filled"}
        disabled={url.trim() === ""}
      >
        <TextInput
          label="Address of a paid page"
          description="Purser requests the page once to read its price. Nothing is paid."
          placeholder="api.example.com/data"
          inputMode="url"
          data-autofocus
          value={url}
          onChange={(event) => {
            setUrl(event);
            probe.reset();
          }}
        />
      </RequestForm>
      {probe.data && <Found found={probe.data} onPick={onPick} />}
    </Stack>
  );
}

/** People type a host; https is what a paid site needs. */
const asUrl = (typed: string): string => {
  const text = typed.trim();
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(text)) return text;
  const isHere = /^(localhost|127\.0\.0\.1)(:|\/|$)/.test(text);
  return `${isHere ? "http" : "https"}://${text}`;
};

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
    <Stack>
      <KeyValues
        rows={[
          [
            "Site",
            <code key="site">{`${site}${readableSite === null ? "" : ` (${readableSite})`}`}</code>,
          ],
          ["Paid to", <Address key="payee" value={payTo} full />],
          ["Price", `${formatUsdc(price)} USDC`],
          ["Network", network],
        ]}
      />
      {sellerTexts.length > 0 && (
        <Paper component="figure" radius="md" p="sm" className={styles.sellerTexts}>
          <Text component="figcaption" c="dimmed" size="sm">
            Text from the site, not checked by Purser
          </Text>
          {sellerTexts.map((words) => (
            <Text key={words} component="blockquote" size="sm" m={0} mt="xs">
              {words}
            </Text>
          ))}
        </Paper>
      )}
      {listed.length > 0 && !isListed && (
        <Note color="yellow">You allowed a different address at this site before.</Note>
      )}
      {isListed ? (
        <p role="status">This site is already on the list.</p>
      ) : (
        <>
          <Text c="dimmed" size="sm">
            The agent can then pay this address only through x402-fetch at exactly this site.
          </Text>
          <Group justify="flex-end">
            <Button
              variant="filled"
              onClick={() => {
                onPick({ address: payTo, label: new URL(site).host.slice(0, 80), site });
              }}
            >
              Add to the list
            </Button>
          </Group>
        </>
      )}
    </Stack>
  );
}

import { Button, Group, Paper, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { KeyValues, Note } from "../../components/Layout.tsx";
import { Price } from "../../components/Price.tsx";
import { isSameAddress } from "../../lib/address.ts";
import type { SiteLookup } from "../../lib/wire.ts";
import styles from "./AllowlistEditor.module.css";
import type { AllowlistDraft } from "./rules.ts";

interface FoundSiteProps {
  found: SiteLookup;
  onPick: (entry: AllowlistDraft) => void;
}

/** The payee that a website named, which the user adds for that site. */
export function FoundSite({ found, onPick }: FoundSiteProps): ReactNode {
  const { site, readableSite, payTo, network, listed, thirdParty } = found;
  const isListed = listed.some((address) => isSameAddress(address, payTo));
  const { serviceName, description } = thirdParty;
  const sellerTexts = [serviceName, description].filter((words) => words !== null);
  return (
    <Paper withBorder radius="md" p="md" role="group" aria-label="What the website asks for">
      <Stack>
        <KeyValues
          rows={[
            [
              "Site",
              <code key="site">{`${site}${readableSite === null ? "" : ` (${readableSite})`}`}</code>,
            ],
            ["Paid to", <Address key="payee" value={payTo} full />],
            ["Price", <Price key="price" of={found} />],
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
    </Paper>
  );
}

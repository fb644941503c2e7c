import { ActionIcon, Button, Flex, Group, Stack, Text } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { Address } from "../../components/Address.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { QrIcon } from "../../components/icons.tsx";
import { KeyValues, Note, Section } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { placesOf } from "../../lib/balances.ts";
import { atomic } from "../../lib/money.ts";
import type { Agent } from "../../lib/wire.ts";
import { useExplorer, useNetworkNames } from "../../shared/info.ts";
import { FundDialog } from "./FundDialog.tsx";
import { WholeAddress } from "./WholeAddress.tsx";

/** The agent's balance on each network, with the ways to fund it. */
export function BalanceCard({ agent }: { agent: Agent }): ReactNode {
  const explorer = useExplorer(agent.network);
  const [open, setOpen] = useState<"fund" | "qr">();
  const nameOf = useNetworkNames();
  const elsewhere = placesOf(agent).filter(({ network }) => network !== agent.network);
  const close = (): void => {
    setOpen(undefined);
  };
  const isArchived = agent.status === "archived";
  return (
    <Section title="Balance">
      <Stack>
        <Money amount={agent.balance} size="display" />
        {agent.balance === null && (
          <Note color="yellow">
            The chain cannot be read right now. Your money is not affected.
          </Note>
        )}
        {elsewhere.length > 0 && (
          <KeyValues
            rows={elsewhere.map(({ network, balance }) => [
              `On ${nameOf(network)}`,
              <Money key={network} amount={balance} />,
            ])}
          />
        )}
        {agent.allowances?.map(({ network, amount }) => (
          <Text key={network} span c="dimmed" size="sm">
            Permit2 payments may use <Money amount={amount} /> of this balance on {nameOf(network)}.
          </Text>
        ))}
        <Flex align="center">
          <Address value={agent.walletAddress} explorerUrl={explorer} />
          <ActionIcon
            size="sm"
            aria-label="Show the address as a QR code"
            title="QR code"
            onClick={() => {
              setOpen("qr");
            }}
          >
            <QrIcon size={16} />
          </ActionIcon>
        </Flex>
        {!isArchived && agent.balance !== null && atomic(agent.balance) === 0n && (
          <Text c="dimmed" size="sm">
            {elsewhere.length === 0
              ? "Empty: the agent cannot pay until you fund it."
              : `Empty on ${nameOf(agent.network)}, the network it pays on by default.`}
          </Text>
        )}
        {!isArchived && (
          <Group>
            <Button
              variant="filled"
              onClick={() => {
                setOpen("fund");
              }}
            >
              Fund
            </Button>
          </Group>
        )}
      </Stack>
      <FundDialog agent={agent} opened={open === "fund"} onClose={close} />
      <Dialog opened={open === "qr"} onClose={close} title={`Address of ${agent.name}`} size="sm">
        <Stack gap="sm">
          <WholeAddress agent={agent} />
        </Stack>
      </Dialog>
    </Section>
  );
}

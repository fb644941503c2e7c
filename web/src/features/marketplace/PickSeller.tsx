import { Button } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import type { ReactNode } from "react";
import { Dialog } from "../../components/Dialog.tsx";
import { SellerList, type SellerListProps } from "./SellerList.tsx";

export function PickSeller({ onPick, has }: SellerListProps): ReactNode {
  const [isOpen, { open, close }] = useDisclosure();
  return (
    <>
      <Button size="xs" onClick={open}>
        Pick from the marketplace
      </Button>
      <Dialog opened={isOpen} onClose={close} title="Sellers in the marketplace" size="lg">
        {isOpen && <SellerList onPick={onPick} has={has} />}
      </Dialog>
    </>
  );
}

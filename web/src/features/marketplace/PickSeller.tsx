import { type ReactNode, useState } from "react";
import { Button } from "../../components/Button.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { SellerList, type SellerListProps } from "./SellerList.tsx";

export function PickSeller({ onPick, has }: SellerListProps): ReactNode {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <Button
        size="small"
        onClick={() => {
          setOpen(true);
        }}
      >
        Pick from the marketplace
      </Button>
      <Dialog
        opened={isOpen}
        onClose={() => {
          setOpen(false);
        }}
        title="Sellers in the marketplace"
        size="lg"
      >
        {isOpen && <SellerList onPick={onPick} has={has} />}
      </Dialog>
    </>
  );
}

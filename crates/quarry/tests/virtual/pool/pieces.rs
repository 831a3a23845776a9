//! Pages that several users share in pieces.

use super::*;

#[test]
fn pieces_share_a_page() {
    let pages = boot(2, 1, Era::V6_18);
    let mut owner = PoolOwner::create(&pages, Era::V6_18, &PoolParams::default()).unwrap();
    let pool = owner.handle();
    let pieces: Vec<_> = (0..5).map(|_| owner.alloc_piece(1920).unwrap()).collect();
    assert_eq!(pieces[0].pfn, pieces[1].pfn, "two per page");
    assert_eq!((pieces[0].offset, pieces[1].offset), (0, 1920));
    assert_ne!(pieces[1].pfn, pieces[2].pfn);
    let first = pieces[0].pfn;
    let none = |offset| Err(PoolError::NoPiece { pfn: first, offset });
    for wrong in [64, 1919, 1984, 4032, 4096, u32::MAX] {
        assert_eq!(pool.lone_put_piece(first, wrong), none(wrong));
    }
    assert_eq!(pool.lone_put(first), Err(PoolError::InPieces(first)));
    assert_eq!(pool.lone_put_piece(first, 1920), Ok(Put::Piece));
    assert_eq!(pool.lone_put_piece(first, 1920), none(1920));
    assert_eq!(pool.lone_put_piece(first, 0), Ok(Put::Ring));
    let again = PoolError::NotInFlight(first);
    assert_eq!(pool.lone_put_piece(first, 0), Err(again));
    // The page that pieces are cut from begins anew when all of them are back.
    let open = pieces[4];
    assert_eq!(pool.stats().inflight, 2);
    assert_eq!(owner.lone_put_piece(open.pfn, open.offset), Ok(Put::Piece));
    assert_eq!(pool.stats().inflight, 1);
    let next = owner.alloc_piece(4096).unwrap();
    assert_eq!((next.pfn, next.offset), (open.pfn, 0));
    for bytes in [0, 4097] {
        let block_bytes = 4096;
        let size = PieceError::Size { bytes, block_bytes };
        assert_eq!(owner.alloc_piece(bytes), Err(size));
    }
    assert_eq!(owner.lone_put_piece(next.pfn, 0), Ok(Put::Piece));
    assert_eq!(
        owner.lone_put_piece(pieces[2].pfn, pieces[2].offset),
        Ok(Put::Piece)
    );
    assert_eq!(
        owner.lone_put_piece(pieces[3].pfn, pieces[3].offset),
        Ok(Put::Cached)
    );
    end(owner, pool);
}

/// Small pieces are spread so that their starts can be told apart.
#[test]
fn at_most_63_pieces_share_a_page() {
    for page_shift in [12, 16] {
        let setup = Setup {
            page_shift,
            ..Setup::of_pages(1 << 14)
        };
        let pages = boot_pages(Era::V6_18, setup);
        let mut owner = PoolOwner::create(&pages, Era::V6_18, &PoolParams::default()).unwrap();
        let pieces: Vec<_> = (0..64).map(|_| owner.alloc_piece(1).unwrap()).collect();
        assert!(pieces[..63].iter().all(|piece| piece.pfn == pieces[0].pfn));
        assert_ne!(pieces[63].pfn, pieces[0].pfn);
        for piece in pieces {
            owner.lone_put_piece(piece.pfn, piece.offset).unwrap();
        }
        // As many packets as the mlx5 driver of 4.13 puts into a page of 64 KiB.
        if page_shift == 16 {
            let params = PoolParams::default();
            let mut owner = PoolOwner::create(&pages, Era::V6_18, &params).unwrap();
            let pieces: Vec<_> = (0..35).map(|_| owner.alloc_piece(1920).unwrap()).collect();
            assert!(pieces[..34].iter().all(|piece| piece.pfn == pieces[0].pfn));
            assert_ne!(pieces[34].pfn, pieces[0].pfn);
            for piece in pieces {
                owner.lone_put_piece(piece.pfn, piece.offset).unwrap();
            }
        }
        assert!(owner.destroy().is_ok());
        check_empty(&pages);
    }
}
